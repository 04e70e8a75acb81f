import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";
import { programPath } from "../programs/test-programs.ts";
import type { DiskStep } from "./watch-calls.ts";

interface Source {
  path: string;
  sizeBytes: number;
  sha256: string;
}

interface Change {
  key: string;
  kind: "create" | "replace" | "remove";
  content: string;
}

export type Task =
  | { do: "count"; key: string; times: number }
  | { do: "lock"; key: string; times: number }
  | { do: "claim"; keys: string[]; name: string }
  | ({ do: "write-on"; key: string } & Source)
  | ({ do: "hold"; key: string } & Source)
  | ({ do: "change"; step: number } & Change)
  | ({ do: "record" } & Change)
  | ({ do: "fill" } & Source);

interface Fact {
  won?: string[];
  number?: number;
  steps?: DiskStep[];
  storedBytes?: number;
  filled?: { refusals: string[]; kept: number; listed: number; worksAgain: boolean };
  done?: boolean;
}

/** The script mounts the small disk in a mount namespace of its own, so that the disk goes away with the process. */
const onSmallDisk = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift && exec "$NODE" "$WORKER" "$@"';

/** A separate process that uses a store. It does not outlive its test. */
export class StoreProcess {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #ended: Promise<unknown[]>;
  readonly facts: Fact[] = [];
  #stderr = "";

  /** With `diskBytes` the directory is a disk of that size, for this process only. */
  constructor(directory: string, task: Task, options: { diskBytes?: number } = {}) {
    const worker = programPath("store-worker");
    const words = [directory, JSON.stringify(task)];
    const { diskBytes } = options;
    const [program, args] =
      diskBytes === undefined
        ? [process.execPath, [worker, ...words]]
        : ["unshare", ["--mount", "sh", "-c", onSmallDisk, "sh", String(diskBytes), ...words]];
    this.#child = spawn(program, args, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, NODE: process.execPath, WORKER: worker },
    });
    this.#ended = once(this.#child, "close");
    onTestFinished(() => {
      this.#child.kill("SIGKILL");
    });
    const { stdout, stderr } = this.#child;
    if (stdout === null || stderr === null) throw new Error("The process has no output");
    stderr.on("data", (data: Buffer) => {
      this.#stderr += data.toString();
    });
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  }

  /** Returns the next fact that the process reports, or undefined when it has ended. */
  async next(): Promise<Fact | undefined> {
    const { done, value } = await this.#lines.next();
    if (done === true) return undefined;
    const fact = JSON.parse(value) as Fact;
    this.facts.push(fact);
    return fact;
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.end();
  }

  /** Returns how the process ended: its signal, or its exit code with its stderr. */
  async end(): Promise<string> {
    for (;;) if ((await this.next()) === undefined) break;
    await this.#ended;
    return this.#child.signalCode ?? `exit ${this.#child.exitCode} ${this.#stderr}`.trim();
  }
}
