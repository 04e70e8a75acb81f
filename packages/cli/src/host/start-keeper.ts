import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { messageOf } from "@atoll/host";
import { isSandboxError, SandboxError, type ErrorCode } from "@atoll/protocol";

/** The first line that a keeper prints. */
export type KeeperWord = { ready: true } | { error: { code: ErrorCode; message: string; suggestion?: string } };

/** The exit code of `flock` when another process has the lock. */
const lockedExitCode = 75;

/**
 * Starts a command of ours that keeps something running in a directory and outlives this program, and returns its first
 * word. With a path of a lock it has the lock as long as it lives.
 */
export async function startKeeper(
  command: "keep-server" | "keep-apps",
  directory: string,
  { signal, lock }: { signal: AbortSignal; lock?: string },
): Promise<KeeperWord> {
  const entry = fileURLToPath(import.meta.resolve("@atoll/cli/start"));
  const locking = lock === undefined ? [] : `flock --nonblock --no-fork -E ${lockedExitCode}`.split(" ").concat(lock);
  const [file, ...args] = [...locking, process.execPath, entry, command, directory];
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "ignore"], detached: true, cwd: "/" });
  child.unref();
  const stop = () => void child.kill("SIGTERM");
  signal.addEventListener("abort", stop, { once: true });
  try {
    for await (const line of createInterface({ input: child.stdout })) return JSON.parse(line) as KeeperWord;
  } finally {
    signal.removeEventListener("abort", stop);
    child.stdout.destroy();
  }
  signal.throwIfAborted();
  child.ref();
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  if (child.exitCode === lockedExitCode) {
    return { error: { code: "in_use", message: `Cannot use ${directory}: another process uses it` } };
  }
  return { error: { code: "start_failed", message: `Cannot start "atoll ${command}": it has ended` } };
}

/** The failure that a keeper reported. */
export function failureOfKeeper(word: KeeperWord): SandboxError {
  if (!("error" in word)) return new SandboxError("internal", "Cannot use a keeper: it was started");
  const { code, message, suggestion } = word.error;
  return new SandboxError(code, message, suggestion === undefined ? {} : { suggestion });
}

/** What a keeper says when it cannot begin. */
export function wordOfFailure(error: unknown): KeeperWord {
  if (!isSandboxError(error)) return { error: { code: "internal", message: messageOf(error) } };
  const { code, message, suggestion } = error;
  return { error: { code, message, ...(suggestion === undefined ? {} : { suggestion }) } };
}
