import { isSandboxError, type ProcessExit, SandboxError } from "@atoll/protocol";
import { type HostProcess, startHostProcess } from "./host-process.ts";

export interface RunOptions {
  signal: AbortSignal;
  timeoutMs: number;
  /** The time between SIGTERM and SIGKILL, after the time limit or an abort. */
  graceMs?: number;
  /** These bytes are written to stdin, which is then closed. */
  input?: Uint8Array | string;
  /** The limit of stdout, and of stderr; the rest is read and thrown away. */
  maxOutputBytes?: number;
  cwd?: string;
  /** These variables are added to `PATH` and `LANG`; no others are inherited. */
  env?: Readonly<Record<string, string>>;
}

export interface RunResult {
  exitCode: number | null;
  signal: ProcessExit["signal"];
  stdout: string;
  stderr: string;
  /** Output was thrown away because of `maxOutputBytes`. */
  truncated: boolean;
}

/**
 * Runs a program of the host to its end. A non-zero exit is a result: only the caller knows what the code means.
 * Rejects when the program cannot start (`spawn_failed`), outlives `timeoutMs` (`timed_out`) or `signal` aborts (its
 * reason); then the whole process group is gone.
 */
export async function run(file: string, args: readonly string[], options: RunOptions): Promise<RunResult> {
  const { input, maxOutputBytes = 1024 * 1024, ...rest } = options;
  const child = await startHostProcess(file, args, {
    ...rest,
    stdin: input === undefined ? "ignore" : "pipe",
  });
  const [output, exit] = await Promise.all([
    collect(child, maxOutputBytes),
    child.wait(),
    input === undefined ? undefined : feed(child, input),
  ]);
  if (child.endReason === "abort") throw options.signal.reason;
  if (child.endReason === "timeout") {
    throw new SandboxError("timed_out", `Cannot run ${file}: it took more than ${options.timeoutMs} ms`, {
      details: { file, stderr: output.stderr.slice(-4096) },
    });
  }
  return { exitCode: exit.exitCode, signal: exit.signal, ...output };
}

async function collect(
  child: HostProcess,
  maxOutputBytes: number,
): Promise<Pick<RunResult, "stdout" | "stderr" | "truncated">> {
  const kept: Record<"stdout" | "stderr", Buffer[]> = { stdout: [], stderr: [] };
  let truncated = false;
  for await (const { stream, data, offset } of child) {
    const room = Math.max(0, maxOutputBytes - offset);
    if (room > 0) kept[stream].push(data.subarray(0, room));
    if (data.length > room) truncated = true;
  }
  const text = (parts: Buffer[]): string => Buffer.concat(parts).toString("utf8");
  return { stdout: text(kept.stdout), stderr: text(kept.stderr), truncated };
}

async function feed(child: HostProcess, input: Uint8Array | string): Promise<void> {
  try {
    await child.writeStdin(input);
  } catch (error) {
    // A program may end, or close its stdin, before it has read everything.
    if (!isSandboxError(error, "invalid_state")) throw error;
  }
  await child.closeStdin();
}
