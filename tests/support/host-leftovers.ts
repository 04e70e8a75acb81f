import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

export interface Leftovers {
  processes: number[];
  mounts: string[];
  cgroups: string[];
  sandboxes: string[];
}

/** The command line and mounts of every process of this host. */
type Host = readonly { pid: number; command: string; mounts: string[] }[];

/** Finds everything on this host that belongs to the sandboxes of a data directory, without help of the engine. */
export async function hostLeftovers(dataDir: string): Promise<Leftovers> {
  return leftoversOf(dataDir, await readHost());
}

/** Finds the leftovers of many data directories, without those that have none. */
export async function allLeftovers(dataDirs: readonly string[]): Promise<Record<string, Leftovers>> {
  const host = await readHost();
  const found: Record<string, Leftovers> = {};
  for (const dir of dataDirs) {
    const left = await leftoversOf(dir, host);
    if (Object.values(left).flat().length > 0) found[dir] = left;
  }
  return found;
}

async function readHost(): Promise<Host> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  return Promise.all(
    pids.map(async (pid) => {
      const command = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
      const table = await readFile(`/proc/${pid}/mountinfo`, "utf8").catch(() => "");
      return { pid: Number(pid), command, mounts: table.split("\n").map((line) => line.split(" ")[4] ?? "") };
    }),
  );
}

async function leftoversOf(dataDir: string, host: Host): Promise<Leftovers> {
  const cgroups = await findCgroups(dataDir);
  const pids = new Set<number>();
  const mounts = new Set<string>();
  for (const directory of cgroups) {
    const text = await readFile(join(directory, "cgroup.procs"), "utf8").catch(() => "");
    for (const line of text.split("\n")) if (line !== "") pids.add(Number(line));
  }
  for (const process of host) {
    if (process.command.includes(`${dataDir}/sandboxes/`)) pids.add(process.pid);
    for (const target of process.mounts) if (target.startsWith(`${dataDir}/`)) mounts.add(target);
  }
  return {
    processes: [...pids].toSorted((a, b) => a - b),
    mounts: [...mounts],
    cgroups,
    sandboxes: await readdir(join(dataDir, "sandboxes")).catch(() => []),
  };
}

/** Finds the cgroups of a data directory under every controller. The engine names them after the directory. */
async function findCgroups(dataDir: string): Promise<string[]> {
  const namespace = createHash("sha256").update(dataDir).digest("hex").slice(0, 12);
  const roots = ["/sys/fs/cgroup", ...(await readdir("/sys/fs/cgroup")).map((name) => `/sys/fs/cgroup/${name}`)];
  const found: string[] = [];
  for (const root of roots) {
    const parent = join(root, "atoll", namespace);
    for (const entry of await readdir(parent, { withFileTypes: true }).catch(() => [])) {
      if (entry.isDirectory()) found.push(join(parent, entry.name));
    }
  }
  return found;
}
