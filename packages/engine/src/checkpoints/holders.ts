import { deadlineAfter, SandboxError, type SandboxId } from "@atoll/protocol";
import type { GuestChannel } from "../guest/channel.ts";
import type { FileHolder } from "../guest/messages.ts";
import { pollUntil } from "../support/poll-until.ts";

/** More would not help whoever has to close them. */
const mostFiles = 32;
const answerMs = 10_000;
/** After SIGKILL. */
const endMs = 10_000;

/** What stands in the way of a checkpoint. */
export interface Unsaveable {
  files: string[];
  /** Who has them open, as the sandbox sees it. */
  processes: FileHolder[];
}

/** Asks the guest, which must not be frozen, who has these files open. */
export async function findHolders(channel: GuestChannel, files: readonly string[]): Promise<Unsaveable> {
  const processes = new Map<number, FileHolder>();
  for (const path of files.slice(0, mostFiles)) {
    const holders = await channel.findHolders(path, deadlineAfter(answerMs));
    for (const holder of holders) processes.set(holder.pid, holder);
  }
  return { files: [...files], processes: [...processes.values()] };
}

/** Ends exactly these processes and waits until none of them has one of the files any more. */
export async function endHolders(channel: GuestChannel, { files, processes }: Unsaveable): Promise<void> {
  const argv = ["/bin/sh", "-c", 'kill -9 "$@"', "sh", ...processes.map(({ pid }) => String(pid))];
  const killer = await channel.spawn({
    argv,
    env: {},
    cwd: "/",
    user: "root",
    stdin: false,
    graceMs: 0,
    windowBytes: 4096,
  });
  killer.discardOutput();
  await killer.wait();
  const ended = new Set(processes.map(({ pid }) => pid));
  await pollUntil(async () => (await findHolders(channel, files)).processes.every(({ pid }) => !ended.has(pid)), {
    deadlineMs: endMs,
  });
}

export function unsaveable(id: SandboxId, { files, processes }: Unsaveable): SandboxError {
  const named = files.slice(0, 3).join(", ") + (files.length > 3 ? ` and ${files.length - 3} more` : "");
  return new SandboxError("unsaveable", `Cannot pause sandbox ${id}: deleted files are still open: ${named}`, {
    suggestion: "Let the processes in details.processes close them, or pause with force, which ends these processes.",
    details: { sandboxId: id, files: files.slice(0, mostFiles), processes },
  });
}
