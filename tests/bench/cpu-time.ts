import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { parseProcessorTimes } from "./load.ts";

const ticksPerSecond = 100;

/** The processor time of a group of processes as the kernel counts it: in ns (cgroups version 1) or µs (version 2). */
export interface CpuGroup {
  readMs(): Promise<number>;
}

/**
 * Returns the group of the container with this launcher, or the group `up` levels above it. The one above contains all
 * containers of one engine.
 */
export async function cpuGroupOf(launcher: { pid: number; id: string }, { up = 0 } = {}): Promise<CpuGroup> {
  const lines = (await readFile(`/proc/${launcher.pid}/cgroup`, "latin1")).trim().split("\n");
  const mounts = await readFile("/proc/self/mounts", "latin1");
  for (const line of lines) {
    const [, controllers = "", path = ""] = line.split(":");
    const end = path.indexOf(launcher.id);
    const isV2 = controllers === "";
    if (end < 0 || !(isV2 || controllers.split(",").includes("cpuacct"))) continue;
    const mount = findMount(mounts, isV2 ? undefined : "cpuacct");
    const names = path.slice(0, end + launcher.id.length).split("/");
    const directory = `${mount}${names.slice(0, names.length - up).join("/")}`;
    return { readMs: () => (isV2 ? readV2(directory) : readV1(directory)) };
  }
  throw new Error(`The kernel does not account for the processor time of container ${launcher.id}`);
}

function findMount(mounts: string, controller: string | undefined): string {
  for (const line of mounts.split("\n")) {
    const [, at = "", type, options = ""] = line.split(" ");
    if (controller === undefined ? type === "cgroup2" : type === "cgroup" && options.split(",").includes(controller)) {
      return at;
    }
  }
  throw new Error("No cgroups are mounted that account for processor time");
}

async function readV1(directory: string): Promise<number> {
  return Number(await readFile(`${directory}/cpuacct.usage`, "latin1")) / 1_000_000;
}

async function readV2(directory: string): Promise<number> {
  const us = /^usage_usec (\d+)$/m.exec(await readFile(`${directory}/cpu.stat`, "latin1"))?.[1];
  return Number(us) / 1000;
}

/** Returns the processor time of one process with all its threads. */
export async function processCpuMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return ((Number(fields[11]) + Number(fields[12])) / ticksPerSecond) * 1000;
}

/** Returns the processor time of everything on the machine, summed over all processors. */
export async function machineCpuMs(): Promise<number> {
  const { total, idle } = parseProcessorTimes(await readFile("/proc/stat", "utf8"));
  return ((total - idle) / ticksPerSecond) * 1000;
}

/** Measures for a while which share of one core each reader's processes take, in percent. */
export async function watchShares(
  readers: readonly (() => Promise<number>)[],
  { forMs, signal }: { forMs: number; signal: AbortSignal },
): Promise<number[]> {
  const startMs = performance.now();
  const before = await Promise.all(readers.map((read) => read()));
  await sleep(forMs, undefined, { signal });
  const after = await Promise.all(readers.map((read) => read()));
  const elapsedMs = performance.now() - startMs;
  return after.map((ms, index) => ((ms - (before[index] ?? 0)) / elapsedMs) * 100);
}
