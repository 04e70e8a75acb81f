import { type ChildProcess, spawn, type StdioOptions } from "node:child_process";
import { once, setMaxListeners } from "node:events";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { type ProcessExit, SandboxError, signalName, type SignalName } from "@atoll/protocol";
import { OutputQueue } from "./output-queue.ts";
import { groupMembers } from "./proc-table.ts";
import { killGroup, signalGroup, waitForGroupEnd } from "./process-group.ts";
import type { OutputEvent, Process } from "./process.ts";

/** A host program inherits only these variables, so that secrets of the server stay in the server. */
export const defaultEnvironment = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  LANG: "C.UTF-8",
};

/**
 * How long to wait after SIGKILL. Only a process that hangs in the kernel needs longer, and waiting does not help then.
 */
const killDeadlineMs = 10_000;

export interface HostProcessOptions {
  /** The process ends when this aborts. With `detachedFromServer` the signal covers the start only. */
  signal: AbortSignal;
  /** The whole process group is ended after this time. */
  timeoutMs?: number;
  /** The time between SIGTERM and SIGKILL, after the time limit or an abort. 0 means SIGKILL at once. */
  graceMs?: number;
  cwd?: string;
  /** These variables are added to `PATH` and `LANG`; no others are inherited. */
  env?: Readonly<Record<string, string>>;
  /** A number is one of our descriptors that the program gets as its stdin. */
  stdin?: "pipe" | "ignore" | number;
  stdout?: "pipe" | "ignore" | number;
  stderr?: "pipe" | "ignore" | number;
  /** Descriptors 3, 4 …; a "pipe" is read with `readable(3)`. */
  extraFds?: readonly ("pipe" | number)[];
  /**
   * The program continues when this process dies, and does not keep it alive. Its stdout and stderr must not be pipes
   * to this process.
   */
  detachedFromServer?: boolean;
  /** The number of bytes of output that may wait for the reader before the program has to wait. */
  windowBytes?: number;
}

type EndReason = "timeout" | "abort";

/**
 * Starts a program of the host without a shell, in a session and a process group of its own. Rejects with
 * `spawn_failed` when it cannot be started, and with the signal's reason when that has aborted already.
 */
export async function startHostProcess(
  file: string,
  args: readonly string[],
  options: HostProcessOptions,
): Promise<HostProcess> {
  options.signal.throwIfAborted();
  const isDetached = options.detachedFromServer === true;
  const output = isDetached ? "ignore" : "pipe";
  const stdio: StdioOptions = [
    options.stdin ?? "ignore",
    options.stdout ?? output,
    options.stderr ?? output,
    ...(options.extraFds ?? []),
  ];
  if (isDetached && (stdio[1] === "pipe" || stdio[2] === "pipe")) {
    throw new Error("A program that outlives the server would die of its broken output pipes");
  }
  try {
    const child = spawn(file, args, {
      detached: true,
      shell: false,
      env: { ...defaultEnvironment, ...options.env },
      stdio,
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    });
    const process = new HostProcess(child, options);
    await once(child, "spawn");
    return process;
  } catch (cause) {
    throw new SandboxError("spawn_failed", `Cannot start ${file}: ${describe(cause)}`, {
      cause,
      suggestion: "Check that the program is installed and that the working directory exists.",
      details: { file, cwd: options.cwd ?? null },
    });
  }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "code" in error ? String(error.code) : error.message;
}

/**
 * A program of the host; `startHostProcess` makes one. CPU time and memory are not known and are 0. A death by a
 * real-time signal cannot be seen: Node reports it as exit code 0.
 */
export class HostProcess implements Process {
  readonly #child: ChildProcess;
  readonly #output: OutputQueue;
  readonly #graceMs: number;
  readonly #exit: Promise<ProcessExit>;
  /** Aborts when the process itself is gone, which removes its listeners and timers. */
  readonly #gone = new AbortController();
  #endReason: EndReason | undefined;
  /**
   * The time when the process group is killed, on the clock of `performance.now()`. Once it is set, `wait` does not
   * settle before the group is gone.
   */
  #killAtMs: number | undefined;
  #isOver = false;

  constructor(child: ChildProcess, options: HostProcessOptions) {
    this.#child = child;
    this.#graceMs = options.graceMs ?? 2_000;
    this.#output = new OutputQueue(options.windowBytes ?? 256 * 1024);
    if (child.stdout) this.#output.addSource("stdout", child.stdout);
    if (child.stderr) this.#output.addSource("stderr", child.stderr);
    // A reader that goes away makes the pending write reject, so this event needs no handler.
    child.stdin?.on("error", () => {});
    // The caller of `startHostProcess` gets this error.
    child.on("error", () => this.#gone.abort());
    this.#exit = new Promise((resolve, reject) => {
      child.once("exit", (exitCode, signal) => {
        this.#finish(exitCode, signal).then(resolve, reject);
      });
    });
    // The end of a process whose `wait` was never called must not become an unhandled rejection.
    this.#exit.catch(() => {});
    if (options.detachedFromServer === true) child.unref();
    else this.#listen(options.signal);
    if (options.timeoutMs !== undefined) this.#whileAlive(() => this.#end("timeout"), options.timeoutMs);
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error("A program that did not start has no process id");
    return this.#child.pid;
  }

  /** What ended the process from outside, if anything: the first reason counts. */
  get endReason(): EndReason | undefined {
    return this.#endReason;
  }

  /**
   * Returns the pipe that was requested with `extraFds`. The caller that requested it reads it to its end or destroys
   * it.
   */
  readable(fd: number): Readable {
    const stream = this.#child.stdio[fd];
    if (fd < 3 || !stream || !("read" in stream)) throw new Error(`Descriptor ${fd} was not requested as a pipe`);
    return stream;
  }

  async writeStdin(data: Uint8Array | string): Promise<void> {
    const { stdin } = this.#child;
    if (!stdin?.writable) throw this.#stdinClosed();
    try {
      await new Promise<void>((resolve, reject) => {
        stdin.write(data, (error) => {
          // A write that our own destroy interrupts is reported without an error.
          if (error || stdin.destroyed) reject(error ?? new Error("The process ended before it had read this"));
          else resolve();
        });
      });
    } catch (cause) {
      throw this.#stdinClosed(cause);
    }
  }

  async closeStdin(): Promise<void> {
    const { stdin } = this.#child;
    if (!stdin || stdin.closed) return;
    const closed = new Promise((resolve) => stdin.once("close", resolve));
    stdin.end();
    await closed;
  }

  async kill(signal: SignalName = "SIGTERM"): Promise<void> {
    // Once the group is gone, another group may get its number.
    if (this.#isOver) return;
    if (signal === "SIGKILL") this.#killAtMs = 0;
    signalGroup(this.pid, signal);
  }

  wait(): Promise<ProcessExit> {
    return this.#exit;
  }

  discardOutput(): void {
    this.#output.discard();
  }

  [Symbol.asyncIterator](): AsyncIterator<OutputEvent> {
    return this.#output[Symbol.asyncIterator]();
  }

  #listen(signal: AbortSignal): void {
    // One signal may cover any number of processes; each removes its listener when it ends.
    setMaxListeners(0, signal);
    signal.addEventListener("abort", () => this.#end("abort"), { signal: this.#gone.signal });
  }

  #whileAlive(action: () => void, delayMs: number): void {
    const timer = setTimeout(action, delayMs);
    this.#gone.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  }

  #end(reason: EndReason): void {
    if (this.#endReason !== undefined) return;
    this.#endReason = reason;
    this.#killAtMs ??= performance.now() + this.#graceMs;
    signalGroup(this.pid, this.#graceMs > 0 ? "SIGTERM" : "SIGKILL");
    this.#whileAlive(() => signalGroup(this.pid, "SIGKILL"), this.#graceMs);
  }

  /** Runs when the process itself is gone. Other processes of its group may still run. */
  async #finish(exitCode: number | null, signal: NodeJS.Signals | null): Promise<ProcessExit> {
    this.#gone.abort();
    this.#child.stdin?.destroy();
    void this.#output.drain();
    try {
      if (this.#killAtMs !== undefined) await this.#clearGroup(this.#killAtMs);
    } finally {
      this.#isOver = true;
    }
    return {
      exitCode,
      signal: signal === null ? null : signalName(constants.signals[signal]),
      timedOut: this.#endReason === "timeout",
      outOfMemory: false,
      cpuUserMs: 0,
      cpuSystemMs: 0,
      peakMemoryBytes: 0,
    };
  }

  async #clearGroup(killAtMs: number): Promise<void> {
    const graceMs = killAtMs - performance.now();
    if (graceMs > 0 && (await waitForGroupEnd(this.pid, graceMs))) return;
    if (await killGroup(this.pid, killDeadlineMs)) return;
    const pids = await groupMembers(this.pid);
    throw new SandboxError("timed_out", `Cannot end ${this.#child.spawnfile}: it is still alive after SIGKILL`, {
      suggestion: "A process that survives SIGKILL hangs in the kernel: check the disks and file systems that it uses.",
      details: { pids },
    });
  }

  #stdinClosed(cause?: unknown): SandboxError {
    const message = `Cannot write to the stdin of ${this.#child.spawnfile}: it is closed`;
    return new SandboxError("invalid_state", message, { cause });
  }
}
