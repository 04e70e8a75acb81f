import { readFile, statfs } from "node:fs/promises";
import { availableParallelism, totalmem } from "node:os";
import { compilePolicy, type ProfileBook } from "@atoll/guard";
import { internetOnly, isolatingDrivers, type AccessPolicy, type LimitCeilings } from "@atoll/protocol";
import type { Config } from "../config/config.ts";
import type { PooledShape } from "../manager/warm-pool.ts";
import { Bounds } from "./bounds.ts";

/**
 * Returns the policy of the whole server, complete except for the number of sandboxes. A field that was not set gets a
 * safe value or the size of the machine.
 */
export async function serverPolicy(
  { drivers = isolatingDrivers, egress = internetOnly, limits, ...profiles }: AccessPolicy,
  dataDir: string,
): Promise<AccessPolicy & { egress: typeof egress }> {
  compilePolicy(egress);
  return { ...profiles, drivers, egress, limits: { ...(await machineLimits(dataDir)), ...limits } };
}

/**
 * Returns the shapes of sandboxes that are kept ready. They have to be within the server's policy, because a key
 * without a narrower policy may get one.
 */
export function pooledShapes(pool: Config["pool"], policy: AccessPolicy, profiles: ProfileBook): PooledShape[] {
  const bounds = new Bounds(profiles, policy);
  const what = "start with this setting pool";
  return pool.map(({ count, template, driver: asked, profile: name, limits: askedLimits }) => {
    const profile = bounds.profileOf(name);
    const { driver, limits } = bounds.terms({ profile, driver: asked, limits: askedLimits }, what);
    return { shape: { template, driver, limits }, count };
  });
}

async function machineLimits(dataDir: string): Promise<LimitCeilings> {
  const [disk, pids, threads] = await Promise.all([
    statfs(dataDir),
    readFile("/proc/sys/kernel/pid_max", "utf8"),
    readFile("/proc/sys/kernel/threads-max", "utf8"),
  ]);
  const memoryBytes = totalmem();
  return {
    memoryBytes,
    cpus: availableParallelism(),
    processes: Math.min(Number(pids), Number(threads)),
    diskBytes: disk.bsize * disk.blocks,
    tmpBytes: memoryBytes,
  };
}
