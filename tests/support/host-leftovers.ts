import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

export interface Leftovers {
  processes: number[];
  mounts: string[];
  cgroups: string[];
  sandboxes: string[];
}

/** Everything on this host that belongs to the sandboxes of a data directory, found without the engine's help. */
export async function hostLeftovers(dataDir: string): Promise<Leftovers> {
  const cgroups = await findCgroups(dataDir);
  const pids = new Set<number>();
  const mounts = new Set<string>();
  for (const directory of cgroups) {
    const text = await readFile(join(directory, "cgroup.procs"), "utf8").catch(() => "");
    for (const line of text.split("\n")) if (line !== "") pids.add(Number(line));
  }
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const command = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    if (command.includes(`${dataDir}/sandboxes/`)) pids.add(Number(name));
    const table = await readFile(`/proc/${name}/mountinfo`, "utf8").catch(() => "");
    for (const line of table.split("\n")) {
      const target = line.split(" ")[4] ?? "";
      if (target.startsWith(`${dataDir}/`)) mounts.add(target);
    }
  }
  return {
    processes: [...pids].toSorted((a, b) => a - b),
    mounts: [...mounts],
    cgroups,
    sandboxes: await readdir(join(dataDir, "sandboxes")).catch(() => []),
  };
}

/** The engine names its cgroups after its data directory; looked for under every controller. */
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
