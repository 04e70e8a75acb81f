import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { StoreConfig } from "@atoll/storage";
import { onTestFinished } from "vitest";
import type { ArchiveAction } from "./archive-action.ts";
import { bringHostScan } from "./host-scan.ts";
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

/** A `crash-server.ts` in a process of its own, to be killed without mercy when it says the right thing. */
export class CrashingServer {
  #child: ChildProcess;
  #facts: AsyncIterator<string>;
  readonly seen: Fact[] = [];
  #stderr = "";

  static readonly program: ProgramName = "crash-server";

  constructor(dataDir: string, ...words: string[]) {
    bringHostScan(dataDir);
    this.#child = spawn(process.execPath, [programPath(new.target.program), dataDir, ...words], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    // A test that fails before it has killed its server must not leave one behind.
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

  /** The first fact that fits. */
  async until(fits: (fact: Fact) => boolean): Promise<Fact> {
    for (;;) {
      const { done, value } = await this.#facts.next();
      if (done === true) throw new Error(`The server ended: ${this.#stderr}`);
      const fact = JSON.parse(value) as Fact;
      this.seen.push(fact);
      if (fits(fact)) return fact;
    }
  }

  /** For one that ends by itself. */
  async gone(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, "exit");
  }

  async killHard(): Promise<void> {
    const gone = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await gone;
  }
}

/** A `crash-manager.ts`: the whole server but for its network side. */
export class CrashingManager extends CrashingServer {
  static override readonly program = "crash-manager";
}

/** An `archive-worker.ts`: moves or collects checkpoints. */
export class CrashingArchive extends CrashingServer {
  static override readonly program = "archive-worker";

  constructor(dataDir: string, store: StoreConfig, action: ArchiveAction) {
    super(dataDir, JSON.stringify(store), JSON.stringify(action));
  }
}

/** A `snapshot-worker.ts`: a library of snapshots that stops in the middle of what it does with its store. */
export class CrashingLibrary extends CrashingServer {
  static override readonly program = "snapshot-worker";
}
