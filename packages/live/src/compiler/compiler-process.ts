import { startHostProcess, type HostProcess } from "@atoll/host";
import { encodeFrame, FrameReader } from "../wire/frames.ts";
import { CompiledModule, maxJobBytes, type CompileJob } from "./compile-job.ts";

const MiB = 1024 * 1024;
/** What Node and the compiler need before the first module. */
const baseBytes = 192 * MiB;
const maxStderrBytes = 16 * 1024;

export interface CompilerLimits {
  /** For one process, beside what an idle one needs. */
  memoryBytes: number;
  /** Processor time of one process, over all of its modules. */
  cpuSeconds: number;
}

/** The limits are those of the kernel, since Node bounds only the heap of JavaScript. */
const shell = 'ulimit -c 0; ulimit -d "$1" && ulimit -t "$2" && shift 2 && exec "$@"';

export interface CompileRun {
  /** The modules that were compiled, in order; fewer than given if the process ended. */
  results: CompiledModule[];
  /** Why the next module was not compiled, as the end of a sentence. The process is gone then. */
  failure: string | undefined;
}

/** A process that compiles modules, with a clean environment and limits of its own. It runs no code of an app. */
export class CompilerProcess implements AsyncDisposable {
  readonly #child: HostProcess;
  readonly #limits: CompilerLimits;
  readonly #reader = new FrameReader(maxJobBytes);
  #stderr = "";
  #hasEnded = false;
  #isRefused = false;
  #onResult: (result: CompiledModule) => void = () => undefined;
  /** Settles when the process is gone and all that it wrote was read. */
  readonly #end: Promise<void>;
  /** The number of modules that it has been given. */
  modules = 0;

  private constructor(child: HostProcess, limits: CompilerLimits) {
    this.#child = child;
    this.#limits = limits;
    this.#end = this.#read();
  }

  static async start(program: string, limits: CompilerLimits): Promise<CompilerProcess> {
    const heapMiB = Math.max(32, Math.floor(limits.memoryBytes / MiB));
    const node = [
      process.execPath,
      `--max-old-space-size=${heapMiB}`,
      "--disallow-code-generation-from-strings",
      "--no-warnings",
      program,
    ];
    const kibibytes = Math.ceil((limits.memoryBytes + baseBytes) / 1024);
    const child = await startHostProcess(
      "/bin/sh",
      ["-c", shell, "sh", String(kibibytes), String(limits.cpuSeconds), ...node],
      { signal: new AbortController().signal, graceMs: 0, cwd: "/", stdin: "pipe" },
    );
    return new CompilerProcess(child, limits);
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** One call at a time. A process that is not done after `timeoutMs` is killed. */
  async compile(jobs: readonly CompileJob[], timeoutMs: number): Promise<CompileRun> {
    const results: CompiledModule[] = [];
    this.modules += jobs.length;
    let isLate = false;
    const finished = new Promise<void>((resolve) => {
      this.#onResult = (result) => {
        if (results.push(result) === jobs.length) resolve();
      };
    });
    const timer = setTimeout(() => {
      isLate = true;
      void this.#child.kill("SIGKILL");
    }, timeoutMs);
    // A process that ends while it is written to is noticed by its end.
    const frames = Buffer.concat(jobs.map((job) => encodeFrame(job, maxJobBytes)));
    this.#child.writeStdin(frames).catch(() => undefined);
    await Promise.race([finished, this.#end]);
    clearTimeout(timer);
    this.#onResult = () => undefined;
    if (results.length === jobs.length) return { results, failure: undefined };
    if (isLate) return { results, failure: `it was not done within ${timeoutMs} ms and was ended` };
    return { results, failure: await this.#describeEnd() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child.kill("SIGKILL");
    await this.#end;
  }

  async #read(): Promise<void> {
    try {
      for await (const { stream, data } of this.#child) {
        if (stream === "stderr") this.#stderr = (this.#stderr + data.toString()).slice(-maxStderrBytes);
        else for (const message of this.#reader.push(data)) this.#onResult(CompiledModule.parse(message));
      }
    } catch {
      this.#isRefused = true;
      await this.#child.kill("SIGKILL");
    }
    await this.#child.wait().catch(() => undefined);
    this.#hasEnded = true;
  }

  async #describeEnd(): Promise<string> {
    if (this.#isRefused) return "the compiler answered what is not understood";
    const { exitCode, signal } = await this.#child.wait();
    if (/out of memory|memory allocation of|allocation failed|cannot allocate/i.test(this.#stderr)) {
      return `it needs more memory than ${Math.floor(this.#limits.memoryBytes / MiB)} MiB`;
    }
    if (signal === "SIGXCPU" || signal === "SIGKILL") {
      return `the compiler used more processor time than ${this.#limits.cpuSeconds} s`;
    }
    return `the compiler ended with ${signal === null ? `code ${exitCode}` : `signal ${signal}`}`;
  }
}
