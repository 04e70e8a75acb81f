import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { StoreConfig } from "@atoll/storage";
import { onTestFinished } from "vitest";
import type { ArchiveAction } from "./archive-action.ts";
import { copyHostScan } from "./host-scan.ts";
import { programPath, type ProgramName } from "./programs/test-programs.ts";

export interface Fact {
  sandboxId?: string;
  streamId?: number;
  bytes?: number;
  state?: string;
  created?: string;
  killed?: string;
  exit?: unknown;
  done?: boolean;
  commandId?: string;
  stdinBytes?: number;
  step?: string;
  name?: string;
  until?: number;
}

/**
 * The action that `crash-manager.ts` starts on each persistent sandbox, and the step at which the action stops. The
 * keys are names that the test chooses.
 */
export type CrashPlan = Record<string, { move: "rollback" | "pause"; step: string }>;

/** A `crash-server.ts` in a separate process. The test kills it with SIGKILL when it has printed the right line. */
export class CrashingServer {
  #child: ChildProcess;
  #facts: AsyncIterator<string>;
  readonly seen: Fact[] = [];
  #stderr = "";

  static readonly program: ProgramName = "crash-server";

  constructor(dataDir: string, ...words: string[]) {
    copyHostScan(dataDir);
    this.#child = spawn(process.execPath, [programPath(new.target.program), dataDir, ...words], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    // A test that fails before it has killed its server must not leave it running.
    onTestFinished(() => {
      this.#child.kill("SIGKILL");
    });
    const { stdout, stderr } = this.#child;
    if (stdout === null || stderr === null) throw new Error("The server has no output");
    stderr.on("data", (data: Buffer) => {
      this.#stderr += data.toString();
    });
    this.#facts = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  /** Waits for the first fact that `fits` accepts. */
  async until(fits: (fact: Fact) => boolean): Promise<Fact> {
    for (;;) {
      const { done, value } = await this.#facts.next();
      if (done === true) throw new Error(`The server ended: ${this.#stderr}`);
      const fact = JSON.parse(value) as Fact;
      this.seen.push(fact);
      if (fits(fact)) return fact;
    }
  }

  /** Waits until the process ends by itself. */
  async gone(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, "exit");
  }

  async killHard(): Promise<void> {
    const gone = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await gone;
  }
}

/** Runs `crash-manager.ts`: the whole server without its network side. */
export class CrashingManager extends CrashingServer {
  static override readonly program = "crash-manager";
}

/** Runs `archive-worker.ts`, which moves or collects checkpoints. */
export class CrashingArchive extends CrashingServer {
  static override readonly program = "archive-worker";

  constructor(dataDir: string, store: StoreConfig, action: ArchiveAction) {
    super(dataDir, JSON.stringify(store), JSON.stringify(action));
  }
}

/** Runs `snapshot-worker.ts`: a library of snapshots that stops before or after a call to its store. */
export class CrashingLibrary extends CrashingServer {
  static override readonly program = "snapshot-worker";
}
