import { type ChildProcess, spawn, type StdioOptions } from "node:child_process";
import { once, setMaxListeners } from "node:events";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { type ProcessExit, SandboxError, signalName, type SignalName } from "@atoll/protocol";
import { OutputQueue } from "./output-queue.ts";
import { groupMembers } from "./proc-table.ts";
import { killGroup, signalGroup, waitForGroupEnd } from "./process-group.ts";
import type { OutputEvent, Process } from "./process.ts";

/** All that a host program sees of our environment: secrets of the server stay in the server. */
export const defaultEnvironment = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  LANG: "C.UTF-8",
};

/** After SIGKILL. Only a process that hangs in the kernel needs longer, and waiting does not help it. */
const killDeadlineMs = 10_000;

export interface HostProcessOptions {
  /** Ends the process when it aborts. With `detachedFromServer` it covers the start only. */
  signal: AbortSignal;
  /** The whole process group is ended after this. */
  timeoutMs?: number;
  /** Between SIGTERM and SIGKILL, after the time limit or an abort. 0: SIGKILL at once. */
  graceMs?: number;
  cwd?: string;
  /** Added to `PATH` and `LANG`; nothing else is inherited. */
  env?: Readonly<Record<string, string>>;
  /** A number is one of our descriptors that becomes the program's. */
  stdin?: "pipe" | "ignore" | number;
  stdout?: "pipe" | "ignore" | number;
  stderr?: "pipe" | "ignore" | number;
  /** Descriptors 3, 4 …; a "pipe" is read with `readable(3)`. */
  extraFds?: readonly ("pipe" | number)[];
  /** The program lives on when we die, and does not keep us alive. Its stdout and stderr must not be pipes of ours. */
  detachedFromServer?: boolean;
  /** Bytes of output that may wait for the reader before the program is made to wait. */
  windowBytes?: number;
}

type EndReason = "timeout" | "abort";

/**
 * Starts a program of the host: no shell, a session and a process group of its own. Rejects with `spawn_failed` when it
 * cannot be started and with the signal's reason when that has aborted already.
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
      suggestion: "See that the program is installed and that the working directory exists.",
      details: { file, cwd: options.cwd ?? null },
    });
  }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "code" in error ? String(error.code) : error.message;
}

/**
 * A program of the host; `startHostProcess` makes one. CPU time and memory are not known and told as 0. A death by a
 * real-time signal cannot be seen: Node tells it as exit code 0.
 */
export class HostProcess implements Process {
  readonly #child: ChildProcess;
  readonly #output: OutputQueue;
  readonly #graceMs: number;
  readonly #exit: Promise<ProcessExit>;
  /** Aborts when the process itself is gone: its listeners and timers go with it. */
  readonly #gone = new AbortController();
  #endReason: EndReason | undefined;
  /**
   * When patience with the process group ends, on the clock of `performance.now()`. Set: the group has to go with the
   * process.
   */
  #killAtMs: number | undefined;
  #isOver = false;

  constructor(child: ChildProcess, options: HostProcessOptions) {
    this.#child = child;
    this.#graceMs = options.graceMs ?? 2_000;
    this.#output = new OutputQueue(options.windowBytes ?? 256 * 1024);
    if (child.stdout) this.#output.addSource("stdout", child.stdout);
    if (child.stderr) this.#output.addSource("stderr", child.stderr);
    // A reader that goes away makes the write in hand reject; there is no one else to tell.
    child.stdin?.on("error", () => {});
    // The caller of `startHostProcess` is told.
    child.on("error", () => this.#gone.abort());
    this.#exit = new Promise((resolve, reject) => {
      child.once("exit", (exitCode, signal) => {
        this.#finish(exitCode, signal).then(resolve, reject);
      });
    });
    // The end of a process that nobody waits for is not to become an unhandled rejection.
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

  /** The pipe that was asked for with `extraFds`. Whoever asked for it reads it to its end or destroys it. */
  readable(fd: number): Readable {
    const stream = this.#child.stdio[fd];
    if (fd < 3 || !stream || !("read" in stream)) throw new Error(`Descriptor ${fd} was not asked for as a pipe`);
    return stream;
  }

  async writeStdin(data: Uint8Array | string): Promise<void> {
    const { stdin } = this.#child;
    if (!stdin?.writable) throw this.#stdinClosed();
    try {
      await new Promise<void>((resolve, reject) => {
        stdin.write(data, (error) => {
          // A write that is cut off by our own destroy is reported without an error.
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
    // Once the group is gone its number may become another's.
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
    // One signal may stand over any number of processes; each takes its listener away when it ends.
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

  /** The process itself is gone. Others of its group may not be. */
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
    throw new SandboxError("timed_out", `Cannot end ${this.#child.spawnfile}: it lives on after SIGKILL`, {
      suggestion:
        "A process that survives SIGKILL hangs in the kernel, on a disk or a network file system: look there.",
      details: { pids },
    });
  }

  #stdinClosed(cause?: unknown): SandboxError {
    const message = `Cannot write to the stdin of ${this.#child.spawnfile}: it is closed`;
    return new SandboxError("invalid_state", message, { cause });
  }
}
