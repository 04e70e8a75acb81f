import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type CgroupKernel, hostCgroupKernel } from "./cgroup-kernel.ts";
import { CgroupV1Tree, type V1Mounts } from "./cgroup-v1.ts";
import { CgroupV2Tree } from "./cgroup-v2.ts";
import type { CgroupTree } from "./cgroup.ts";

/** Returns the cgroups of this host, or undefined when it has none that can limit memory and CPU time. */
export async function detectCgroups(): Promise<CgroupTree | undefined> {
  return chooseCgroups(await readFile("/proc/self/mounts", "utf8"), hostCgroupKernel);
}

/**
 * Chooses by the mount table. A host in transition mounts both versions, and a controller belongs to only one of them;
 * memory and CPU have to be in the same version.
 */
export async function chooseCgroups(mountTable: string, kernel: CgroupKernel): Promise<CgroupTree | undefined> {
  const mounts = parseMounts(mountTable);
  for (const { type, path } of mounts) {
    if (type !== "cgroup2") continue;
    const offered = ((await kernel.read(join(path, "cgroup.controllers"))) ?? "").trim().split(" ");
    if (offered.includes("memory") && offered.includes("cpu")) return new CgroupV2Tree(kernel, path);
  }
  const find = (controller: keyof V1Mounts): string | undefined =>
    mounts.find(({ type, options }) => type === "cgroup" && options.includes(controller))?.path;
  const [memory, cpu, cpuacct, freezer, pids] = [
    find("memory"),
    find("cpu"),
    find("cpuacct"),
    find("freezer"),
    find("pids"),
  ];
  if (memory === undefined || cpu === undefined) return undefined;
  return new CgroupV1Tree(kernel, {
    memory,
    cpu,
    ...(cpuacct === undefined ? {} : { cpuacct }),
    ...(freezer === undefined ? {} : { freezer }),
    ...(pids === undefined ? {} : { pids }),
  });
}

interface Mount {
  path: string;
  type: string;
  options: string[];
}

function parseMounts(table: string): Mount[] {
  return table.split("\n").flatMap((line) => {
    const [, path, type, options] = line.split(" ");
    if (path === undefined || type === undefined || options === undefined) return [];
    return [{ path: unescapePath(path), type, options: options.split(",") }];
  });
}

/** The kernel writes space, tab, newline and backslash as octal. */
function unescapePath(path: string): string {
  return path.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCodePoint(Number.parseInt(octal, 8)));
}
