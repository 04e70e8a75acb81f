import { pollUntil } from "@atoll/host";
import { deadlineAfter, isSandboxError, SandboxError, type EndedProcess, type SandboxId } from "@atoll/protocol";
import type { GuestChannel } from "../guest/channel.ts";
import type { DeletedFileUser } from "../guest/messages.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";

/** A longer list would not help the user who has to close the files. */
const mostFiles = 32;
const answerMs = 10_000;
/** How long to wait after SIGKILL. */
const endMs = 10_000;

/** What prevents a checkpoint. */
export interface Unsaveable {
  /** The paths of the files inside, which need not be text. */
  files: Buffer[];
  /** The processes that have them open, as the sandbox sees them. */
  processes: DeletedFileUser[];
}

/** Asks the guest, which must not be frozen, which processes have these files open. */
export async function findDeletedFileUsers(channel: GuestChannel, files: readonly Buffer[]): Promise<Unsaveable> {
  const processes = new Map<number, DeletedFileUser>();
  for (const path of files.slice(0, mostFiles)) {
    const holders = await channel.findDeletedFileUsers(path, deadlineAfter(answerMs));
    for (const holder of holders) processes.set(holder.pid, holder);
  }
  return { files: [...files], processes: [...processes.values()] };
}

/**
 * Kills exactly the processes that have these files open, adds them to `ended`, and waits until no process has one of
 * the files open. Rejects with `unsaveable` if the guest is of an older version, which cannot do that.
 */
export async function endDeletedFileUsers(
  { channel, record }: Pick<SandboxLife, "channel" | "record">,
  found: Unsaveable,
  ended: DeletedFileUser[],
): Promise<void> {
  const pids = new Set<number>();
  for (const path of found.files.slice(0, mostFiles)) {
    const holders = await channel
      .findDeletedFileUsers(path, deadlineAfter(answerMs), "END_HOLDERS")
      .catch((error: unknown) => {
        throw isSandboxError(error, "spawn_failed") ? unsaveable(record.id, found) : error;
      });
    // A process that had several of the files open may be found again before it is gone.
    ended.push(...holders.filter(({ pid }) => !pids.has(pid)));
    for (const { pid } of holders) pids.add(pid);
  }
  await pollUntil(
    async () => (await findDeletedFileUsers(channel, found.files)).processes.every(({ pid }) => !pids.has(pid)),
    {
      deadlineMs: endMs,
    },
  );
}

export function unsaveable(id: SandboxId, found: Unsaveable): SandboxError {
  const { processes } = found;
  const files = found.files.map(String);
  const named = files.slice(0, 3).join(", ") + (files.length > 3 ? ` and ${files.length - 3} more` : "");
  return new SandboxError("unsaveable", `Cannot pause sandbox ${id}: deleted files are still open: ${named}`, {
    suggestion: "Let the processes in details.processes close them, or pause with force, which ends these processes.",
    details: { sandboxId: id, files: files.slice(0, mostFiles), processes },
  });
}

/** The caller learns which processes `force` ended, also when the pause fails. */
export function reportEnded(error: unknown, ended: readonly DeletedFileUser[]): unknown {
  if (ended.length === 0) return error;
  const { code, message, suggestion, details } =
    error instanceof SandboxError
      ? error
      : { code: "internal" as const, message: String(error), suggestion: undefined, details: {} };
  return new SandboxError(code, message, {
    ...(suggestion === undefined ? {} : { suggestion }),
    details: { ...details, ended: ended.map(endedProcess) },
    cause: error,
  });
}

export function endedProcess({ pid, command }: DeletedFileUser): EndedProcess {
  return { pid, command };
}
