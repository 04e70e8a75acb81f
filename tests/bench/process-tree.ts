import { readdir, readFile } from "node:fs/promises";

export interface ProcessEntry {
  pid: number;
  parentPid: number;
  /** The start time in clock ticks since boot. Together with the pid it identifies one process for ever. */
  startTicks: number;
  /** The processor time so far, in hundredths of a second. */
  cpuTicks: number;
}

/** The processes of the machine at one moment. */
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
      // A process that has ended since the listing has no entry.
      pids.map(async (pid) => parseEntry(await readFile(`/proc/${pid}/stat`, "latin1").catch(() => ""))),
    );
    return new ProcessTable(entries.filter((entry) => entry !== undefined));
  }

  /** Returns the process and all its descendants. */
  family(pid: number): ProcessEntry[] {
    const self = this.#entries.get(pid);
    const below = (this.#children.get(pid) ?? []).flatMap((child) => this.family(child.pid));
    return self === undefined ? below : [self, ...below];
  }

  has({ pid, startTicks }: Pick<ProcessEntry, "pid" | "startTicks">): boolean {
    return this.#entries.get(pid)?.startTicks === startTicks;
  }
}

/** Returns undefined for a text that is no line of /proc/<pid>/stat, and for a zombie. */
export function parseEntry(line: string): ProcessEntry | undefined {
  // The command is in parentheses and may contain any character.
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

/** Returns proportional memory, in which a page that k processes share counts 1/k in each; 0 for an ended process. */
export async function pssBytes(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, "utf8").catch(() => "");
  return Number(/^Pss: +(\d+) kB$/m.exec(text)?.[1] ?? 0) * 1024;
}

/** Returns the processes, except this one, that have `text` on their command line. */
export async function processesOf(text: string): Promise<number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name)).map(Number);
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "latin1").catch(() => "")));
  return pids.filter((pid, index) => pid !== process.pid && lines[index]?.includes(text));
}
