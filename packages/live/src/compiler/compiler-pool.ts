import { availableParallelism } from "node:os";
import { bundleProgram, defaultCacheDir } from "../programs/bundle.ts";
import type { CompiledModule, CompileJob } from "./compile-job.ts";
import { CompilerProcess, type CompilerLimits } from "./compiler-process.ts";

/** Modules that a process gets at a time. */
const batchSize = 32;
/** Fewer modules than this are compiled faster by one process than by two. */
const modulesPerProcess = 150;
/** A process is replaced after so many modules, so that no leak of the compiler grows. */
const modulesPerLife = 5_000;
/** One process stays for the next edit; the others end after this time without work. */
const idleMs = 30_000;
/** After so many modules that ended a compiler, the rest of a compile is given up. */
const maxFailures = 3;

export interface CompilerPoolOptions extends Partial<CompilerLimits> {
  /** The most processes at a time. */
  processes?: number;
  cacheDir?: string;
  /** The program of a compiler process, if it is not the one of this package. */
  program?: string;
}

interface Waiting {
  deliver: (process: CompilerProcess | undefined) => void;
}

/** Compiler processes that are started when they are needed, and used for all apps. */
export class CompilerPool implements AsyncDisposable {
  readonly #limits: CompilerLimits;
  readonly #cacheDir: string;
  readonly #max: number;
  #program: Promise<string> | undefined;
  readonly #idle: CompilerProcess[] = [];
  readonly #live = new Set<CompilerProcess>();
  readonly #starting = new Set<Promise<CompilerProcess>>();
  readonly #waiting: Waiting[] = [];
  #idleTimer: NodeJS.Timeout | undefined;
  #isDisposed = false;

  constructor(options: CompilerPoolOptions = {}) {
    const { memoryBytes = 256 * 1024 * 1024, cpuSeconds = 120, cacheDir = defaultCacheDir } = options;
    this.#limits = { memoryBytes, cpuSeconds };
    this.#cacheDir = cacheDir;
    this.#max = options.processes ?? Math.max(4, availableParallelism());
    if (options.program !== undefined) this.#program = Promise.resolve(options.program);
  }

  /** The number of processes that run or are being started. */
  get processes(): number {
    return this.#live.size + this.#starting.size;
  }

  /** Starts a process for the next compile, unless there is one. */
  async warm(): Promise<void> {
    if (this.processes === 0) this.#release(await this.#start());
  }

  /**
   * Compiles modules, in the order in which they are given. One that ends its process, or is not done in time, gets a
   * diagnostic, and so does each that was not reached.
   */
  async compile(jobs: readonly CompileJob[], timeoutMs: number): Promise<CompiledModule[]> {
    const deadline = performance.now() + timeoutMs;
    const results = new Map<CompileJob, CompiledModule>();
    const waiting: CompileJob[][] = [];
    for (let at = 0; at < jobs.length; at += batchSize) waiting.push(jobs.slice(at, at + batchSize));
    let failures = 0;
    const lane = async (): Promise<void> => {
      for (let batch = waiting.shift(); batch !== undefined; batch = waiting.shift()) {
        const failure = await this.#compileBatch(batch, deadline, results);
        if (failure === undefined) continue;
        const [culprit, ...rest] = batch.filter((job) => !results.has(job));
        if (culprit !== undefined)
          results.set(culprit, unfinished(culprit, `Cannot compile ${culprit.module}: ${failure}`));
        failures += 1;
        if (failures >= maxFailures || performance.now() >= deadline) waiting.length = 0;
        else if (rest.length > 0) waiting.unshift(rest);
      }
    };
    const lanes = Math.min(availableParallelism(), Math.ceil(jobs.length / modulesPerProcess));
    await Promise.all(Array.from({ length: lanes }, lane));
    return jobs.map(
      (job) => results.get(job) ?? unfinished(job, `${job.module} was not compiled, since others ended the compiler`),
    );
  }

  /** Ends all processes. What they were at fails. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    clearTimeout(this.#idleTimer);
    for (const { deliver } of this.#waiting.splice(0)) deliver(undefined);
    await Promise.allSettled(this.#starting);
    await Promise.all([...this.#live].map((process) => process[Symbol.asyncDispose]()));
    this.#live.clear();
  }

  async #compileBatch(
    batch: readonly CompileJob[],
    deadline: number,
    results: Map<CompileJob, CompiledModule>,
  ): Promise<string | undefined> {
    const worker = await this.#acquire(deadline);
    if (worker === undefined) return "no compiler process was free in time";
    const run = await worker.compile(batch, Math.max(1, Math.round(deadline - performance.now())));
    this.#release(worker);
    for (const [at, result] of run.results.entries()) {
      const job = batch[at];
      if (job !== undefined) results.set(job, result);
    }
    return run.failure;
  }

  async #acquire(deadline: number): Promise<CompilerProcess | undefined> {
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      if (!idle.hasEnded) return idle;
      this.#live.delete(idle);
    }
    if (this.#isDisposed) return undefined;
    if (this.processes < this.#max) return this.#start();
    return new Promise((resolve) => {
      const waiting: Waiting = {
        deliver: (process) => {
          clearTimeout(timer);
          resolve(process);
        },
      };
      const timer = setTimeout(
        () => {
          this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
          resolve(undefined);
        },
        Math.max(0, deadline - performance.now()),
      );
      this.#waiting.push(waiting);
    });
  }

  async #start(): Promise<CompilerProcess> {
    const starting = this.#startProcess();
    this.#starting.add(starting);
    try {
      const process = await starting;
      this.#live.add(process);
      return process;
    } finally {
      this.#starting.delete(starting);
    }
  }

  async #startProcess(): Promise<CompilerProcess> {
    this.#program ??= bundleProgram("compiler", new URL("./worker.ts", import.meta.url), this.#cacheDir);
    try {
      return await CompilerProcess.start(await this.#program, this.#limits);
    } catch (error) {
      this.#program = undefined;
      throw error;
    }
  }

  #release(process: CompilerProcess): void {
    if (process.hasEnded || process.modules >= modulesPerLife || this.#isDisposed) {
      void this.#drop(process);
      return;
    }
    const next = this.#waiting.shift();
    if (next !== undefined) {
      next.deliver(process);
      return;
    }
    this.#idle.push(process);
    this.#idleTimer ??= setTimeout(() => this.#trim(), idleMs).unref();
  }

  /** Ends all but one of the processes without work. */
  #trim(): void {
    this.#idleTimer = undefined;
    for (const process of this.#idle.splice(1)) void this.#drop(process);
  }

  async #drop(process: CompilerProcess): Promise<void> {
    this.#live.delete(process);
    const next = this.#waiting.shift();
    if (next !== undefined) next.deliver(this.#isDisposed ? undefined : await this.#start().catch(() => undefined));
    await process[Symbol.asyncDispose]();
  }
}

const unfinished = ({ module }: CompileJob, message: string): CompiledModule => ({
  diagnostics: [{ file: module, line: 1, column: 1, severity: "error", kind: "resource", message, frame: "" }],
});
