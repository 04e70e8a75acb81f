import { messageOf, startHostProcess, type HostProcess } from "@atoll/host";
import { isSandboxError } from "@atoll/protocol";
import type { CommandEnd, CommandSpec } from "../models/command.ts";
import type { OutputSink } from "./sandbox-client.ts";
import { SilenceTimer } from "./silence-timer.ts";

/** A program of the host, such as git or docker. */
export interface HostCommand extends Omit<CommandSpec, "user" | "stdin"> {
  stdin?: Uint8Array | AsyncIterable<Uint8Array>;
  /**
   * Runs first when the command has to end early, where the program is only the near end of what has to be killed. The
   * process group of the program is killed in any case.
   */
  kill?: () => Promise<void>;
}

export interface HostCommandResult {
  argv: readonly string[];
  cwd: string;
  /** The variables that were added to `PATH` and `LANG`. */
  env: Readonly<Record<string, string>>;
  startedAt: string;
  durationMs: number;
  end: CommandEnd;
  stdout: string;
  stderr: string;
  /** Whether the beginning of a stream is all that there was room for. */
  truncated: boolean;
}

/** The time between SIGTERM and SIGKILL. */
const graceMs = 500;
const mostTextBytes = 4 * 1024 * 1024;

/** Runs a program to its end, whatever the end is, and keeps the beginning of its output as text. */
export async function runCommand(command: HostCommand, signal: AbortSignal): Promise<HostCommandResult> {
  const kept = { stdout: new TextHead(), stderr: new TextHead() };
  const startedAt = new Date();
  const begun = performance.now();
  const end = await execOnHost(command, { write: (stream, data) => kept[stream].push(data) }, signal);
  return {
    argv: command.argv,
    cwd: command.cwd ?? process.cwd(),
    env: command.env ?? {},
    startedAt: startedAt.toISOString(),
    durationMs: performance.now() - begun,
    end,
    stdout: kept.stdout.text(),
    stderr: kept.stderr.text(),
    truncated: kept.stdout.isCut || kept.stderr.isCut,
  };
}

/** Runs a program to its end and passes its output on. Rejects only when `signal` aborts, or the sink fails. */
export async function execOnHost(command: HostCommand, sink: OutputSink, signal: AbortSignal): Promise<CommandEnd> {
  signal.throwIfAborted();
  const { argv, cwd, env, stdin, timeoutMs, silentTimeoutMs } = command;
  const [file = "", ...args] = argv;
  const killing = new AbortController();
  let child: HostProcess;
  try {
    child = await startHostProcess(file, args, {
      signal: killing.signal,
      graceMs,
      stdin: stdin === undefined ? "ignore" : "pipe",
      ...(cwd === undefined ? {} : { cwd }),
      ...(env === undefined ? {} : { env }),
    });
  } catch (error) {
    return { kind: "lost", reason: messageOf(error) };
  }
  const early = new EarlyEnd(async () => {
    await command.kill?.().catch(() => undefined);
    killing.abort();
  });
  const onAbort = () => void early.begin("aborted");
  signal.addEventListener("abort", onAbort, { once: true });
  const limit = setTimeout(() => void early.begin("total"), timeoutMs);
  await using silence = new SilenceTimer(silentTimeoutMs, () => early.begin("silent"));
  try {
    const feeding = stdin === undefined ? undefined : feed(child, stdin);
    for await (const { stream, data } of child) {
      silence.restart();
      await sink.write(stream, data);
    }
    const exit = await child.wait();
    await feeding;
    await early.done;
    if (early.cause === "aborted") throw signal.reason;
    if (early.cause === "total") return { kind: "timeout", limitMs: timeoutMs, reason: "total" };
    if (early.cause === "silent") return { kind: "timeout", limitMs: silentTimeoutMs ?? 0, reason: "silent" };
    if (exit.exitCode !== null) return { kind: "exit", code: exit.exitCode };
    return { kind: "signal", signal: String(exit.signal) };
  } catch (error) {
    await early.begin("aborted");
    signal.throwIfAborted();
    // It outlived its SIGKILL.
    if (isSandboxError(error, "timed_out")) return { kind: "lost", reason: error.message };
    throw error;
  } finally {
    clearTimeout(limit);
    signal.removeEventListener("abort", onAbort);
  }
}

type Cause = "total" | "silent" | "aborted";

/** Ends a command once, for the first of the reasons to do so. */
class EarlyEnd {
  cause: Cause | undefined;
  done: Promise<void> | undefined;
  readonly #end: () => Promise<void>;

  constructor(end: () => Promise<void>) {
    this.#end = end;
  }

  begin(cause: Cause): Promise<void> {
    this.cause ??= cause;
    this.done ??= this.#end();
    return this.done;
  }
}

async function feed(child: HostProcess, input: Uint8Array | AsyncIterable<Uint8Array>): Promise<void> {
  try {
    if (input instanceof Uint8Array) await child.writeStdin(input);
    else for await (const piece of input) await child.writeStdin(piece);
  } catch (error) {
    // A program may end, or close its stdin, without having read it all.
    if (!isSandboxError(error, "invalid_state")) throw error;
  }
  await child.closeStdin();
}

/** The beginning of a stream as text. */
class TextHead {
  readonly #pieces: Uint8Array[] = [];
  #bytes = 0;
  isCut = false;

  push(data: Uint8Array): void {
    const piece = data.subarray(0, mostTextBytes - this.#bytes);
    if (piece.length > 0) this.#pieces.push(piece);
    if (piece.length < data.length) this.isCut = true;
    this.#bytes += piece.length;
  }

  text(): string {
    return Buffer.concat(this.#pieces).toString("utf8");
  }
}
