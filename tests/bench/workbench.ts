import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DriverName } from "@atoll/protocol";
import type { QuietWatch } from "./load.ts";
import type { Progress } from "./progress.ts";
import { until } from "./until.ts";

export interface WorkbenchOptions {
  progress: Progress;
  quiet: QuietWatch;
  signal: AbortSignal;
  isQuick: boolean;
  /** The driver for benchmarks that have no rival. */
  driver: DriverName;
  /** The seed for all random choices: the same seed makes the same choices. */
  seed: number;
}

/** The parts that every benchmark has: a directory, which is removed at the end, and the user's options. */
export class Workbench implements AsyncDisposable {
  readonly progress: Progress;
  readonly quiet: QuietWatch;
  readonly signal: AbortSignal;
  readonly isQuick: boolean;
  readonly driver: DriverName;
  readonly seed: number;
  readonly dir: string;

  constructor(dir: string, options: WorkbenchOptions) {
    this.dir = dir;
    this.progress = options.progress;
    this.quiet = options.quiet;
    this.signal = options.signal;
    this.isQuick = options.isQuick;
    this.driver = options.driver;
    this.seed = options.seed;
  }

  static async make(options: WorkbenchOptions): Promise<Workbench> {
    return new Workbench(await mkdtemp(join(tmpdir(), "atoll-bench-")), options);
  }

  /** Waits for a promise, until an interrupt or a deadline. */
  until<T>(promise: Promise<T>, what: string): Promise<T> {
    return until(promise, this.signal, what);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.dir, { recursive: true, force: true });
  }
}
