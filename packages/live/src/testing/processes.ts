import { readdir, readFile } from "node:fs/promises";

/** The processes of this machine that have a path among their arguments, other than this one. */
export async function processesWith(path: string): Promise<{ pid: number; command: string }[]> {
  const found: { pid: number; command: string }[] = [];
  for (const name of await readdir("/proc").catch(() => [])) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    // A process that ends in between is none that is left.
    const line = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    const parts = line.split("\0");
    if (parts.includes(path)) found.push({ pid, command: parts.join(" ").trim().slice(0, 200) });
  }
  return found;
}
