import type { Sandbox } from "@atoll/engine";
import { deadlineAfter, type LimitName } from "@atoll/protocol";
import type { Command } from "../commands/command.ts";

const readMs = 10_000;
/** More processes are not looked at: each takes a read in the sandbox. */
const mostProcesses = 256;
const atOnce = 8;

/**
 * Returns the command that uses most of what the limit is about. What one process writes to files cannot be read, so
 * for the disk it is the command that was started last.
 */
export async function largestCommand(
  sandbox: Pick<Sandbox, "files" | "countProcesses">,
  running: readonly Command[],
  limit: LimitName,
): Promise<Command | undefined> {
  if (running.length <= 1 || limit === "disk") return running.at(-1);
  const signal = deadlineAfter(readMs);
  const sizeOf = limit === "processes" ? await countProcesses(sandbox, signal) : await memoryBySession(sandbox, signal);
  const sizes = await Promise.all(running.map(async (command) => ({ command, size: await sizeOf(command) })));
  return sizes.reduce((largest, one) => (one.size >= largest.size ? one : largest)).command;
}

type SizeOf = (command: Command) => number | Promise<number>;

async function countProcesses(sandbox: Pick<Sandbox, "countProcesses">, signal: AbortSignal): Promise<SizeOf> {
  const all = await sandbox.countProcesses({ signal });
  return async ({ stored: { streamId } }) => all - (await sandbox.countProcesses({ without: [streamId], signal }));
}

/**
 * Reads the memory of all processes in the sandbox. The guest starts each command in a session of its own, whose id is
 * the id of the command's first process.
 */
async function memoryBySession({ files }: Pick<Sandbox, "files">, signal: AbortSignal): Promise<SizeOf> {
  const options = { user: "root", signal };
  const names = (await files.list("/proc", options)).map(({ name }) => name).filter((name) => /^\d+$/.test(name));
  const pagesOf = new Map<number, number>();
  for (let from = 0; from < Math.min(names.length, mostProcesses); from += atOnce) {
    const stats = names.slice(from, from + atOnce).map(async (name) => {
      // A process that has ended in between has no memory.
      const text = await files.readAll(`/proc/${name}/stat`, options).catch(() => Buffer.alloc(0));
      return sessionAndPages(text.toString("latin1"));
    });
    for (const { session, pages } of await Promise.all(stats)) {
      pagesOf.set(session, (pagesOf.get(session) ?? 0) + pages);
    }
  }
  return (command) => pagesOf.get(command.info().pid ?? -1) ?? 0;
}

/** Reads fields 6 and 24 of a line of /proc/<pid>/stat; the name in the second one may have spaces and brackets. */
function sessionAndPages(stat: string): { session: number; pages: number } {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return { session: Number(fields[3] ?? 0), pages: Number(fields[21] ?? 0) };
}
