import { readdir, readFile } from "node:fs/promises";

export interface ProcessEntry {
  pid: number;
  parentPid: number;
  /** Clock ticks since boot: with the id it means one process for ever. */
  startTicks: number;
  /** Spent on the processors so far, a hundred to the second. */
  cpuTicks: number;
}

/** All processes at one moment. */
export class ProcessTable {
  #entries = new Map<number, ProcessEntry>();
  #children = new Map<number, ProcessEntry[]>();

  constructor(entries: readonly ProcessEntry[]) {
    for (const entry of entries) {
      this.#entries.set(entry.pid, entry);
      const siblings = this.#children.get(entry.parentPid) ?? [];
      this.#children.set(entry.parentPid, [...siblings, entry]);
    }
  }

  static async read(): Promise<ProcessTable> {
    const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
    const entries = await Promise.all(
      // A process that ends meanwhile has no entry.
      pids.map(async (pid) => parseEntry(await readFile(`/proc/${pid}/stat`, "latin1").catch(() => ""))),
    );
    return new ProcessTable(entries.filter((entry) => entry !== undefined));
  }

  /** The process and everything below it. */
  family(pid: number): ProcessEntry[] {
    const self = this.#entries.get(pid);
    const below = (this.#children.get(pid) ?? []).flatMap((child) => this.family(child.pid));
    return self === undefined ? below : [self, ...below];
  }

  has({ pid, startTicks }: Pick<ProcessEntry, "pid" | "startTicks">): boolean {
    return this.#entries.get(pid)?.startTicks === startTicks;
  }
}

/** Undefined for a text that is no line of /proc/<pid>/stat, and for a process that only waits to be reaped. */
export function parseEntry(line: string): ProcessEntry | undefined {
  // The command, in parentheses, may itself hold any character.
  const end = line.lastIndexOf(")");
  const [state, parentPid, ...rest] = line.slice(end + 2).split(" ");
  const [userTicks, systemTicks, startTicks] = [9, 10, 17].map((index) => Number(rest[index]));
  if (end < 0 || state === "Z" || state === "X") return undefined;
  if (userTicks === undefined || systemTicks === undefined || startTicks === undefined) return undefined;
  return {
    pid: Number.parseInt(line, 10),
    parentPid: Number(parentPid),
    startTicks,
    cpuTicks: userTicks + systemTicks,
  };
}

/** Proportional memory: a page that k processes share counts 1/k in each. 0 for a process that has ended. */
export async function pssBytes(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, "utf8").catch(() => "");
  return Number(/^Pss: +(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024;
}

/** Processes that have `text` on their command line, without this one. */
export async function processesOf(text: string): Promise<number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name)).map(Number);
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "latin1").catch(() => "")));
  return pids.filter((pid, index) => pid !== process.pid && lines[index]?.includes(text));
}
