import { readdir, readFile } from "node:fs/promises";
import { hasErrno } from "../support/errno.ts";

/**
 * A process id identifies a process only together with these: ids are reused, and start times begin again at every
 * boot.
 */
export interface ProcessIdentity {
  pid: number;
  startTicks: number;
  bootId: string;
}

export interface ProcessStat {
  pid: number;
  /** One letter of proc(5): R, S, D, Z … */
  state: string;
  parentPid: number;
  groupId: number;
  /** Clock ticks between the boot and the start of the process (field 22). */
  startTicks: number;
}

/**
 * Parses one line of /proc/<pid>/stat. The command is in parentheses and may contain spaces, parentheses and newlines,
 * so the fields are counted from the last closing parenthesis.
 */
export function parseProcessStat(line: string): ProcessStat | undefined {
  const open = line.indexOf("(");
  const close = line.lastIndexOf(")");
  if (open < 0 || close < open) return undefined;
  const pid = Number(line.slice(0, open));
  const fields = line
    .slice(close + 1)
    .trim()
    .split(/\s+/);
  // The first of these is field 3 of proc(5).
  const [state, parent, group] = fields;
  const startTicks = Number(fields[19]);
  const stat = { pid, state: state ?? "", parentPid: Number(parent), groupId: Number(group), startTicks };
  const isComplete = [stat.pid, stat.parentPid, stat.groupId, startTicks].every(Number.isSafeInteger);
  return isComplete && stat.state !== "" ? stat : undefined;
}

/** Returns undefined when there is no such process. */
export async function readProcessStat(pid: number): Promise<ProcessStat | undefined> {
  try {
    return parseProcessStat(await readFile(`/proc/${pid}/stat`, "latin1"));
  } catch (error) {
    // ESRCH: the process was reaped between open and read.
    if (hasErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}

/** Returns undefined when there is no such process. */
export async function readStartTicks(pid: number): Promise<number | undefined> {
  return (await readProcessStat(pid))?.startTicks;
}

let knownBootId: string | undefined;

/** The id stays the same until the machine starts again. */
export async function bootId(): Promise<string> {
  knownBootId ??= (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
  return knownBootId;
}

/** Says whether exactly this process runs. A process that has ended and waits to be reaped does not run. */
export async function isAlive(identity: ProcessIdentity): Promise<boolean> {
  if (identity.bootId !== (await bootId())) return false;
  const stat = await readProcessStat(identity.pid);
  return stat !== undefined && stat.startTicks === identity.startTicks && isRunning(stat);
}

/** Returns the living processes of a process group. It reads the whole process table. */
export async function groupMembers(groupId: number): Promise<number[]> {
  const names = await readdir("/proc");
  const pids = names.filter((name) => /^\d+$/.test(name)).map(Number);
  const stats = await Promise.all(pids.map(readProcessStat));
  return stats
    .filter((stat) => stat !== undefined)
    .filter((stat) => stat.groupId === groupId && isRunning(stat))
    .map((stat) => stat.pid);
}

function isRunning({ state }: ProcessStat): boolean {
  return state !== "Z" && state !== "X" && state !== "x";
}
