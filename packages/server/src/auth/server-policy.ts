import { readFile, statfs } from "node:fs/promises";
import { availableParallelism, totalmem } from "node:os";
import { internetOnly, isolatingDrivers, type AccessPolicy, type LimitCeilings } from "@atoll/protocol";
import type { Config } from "../config/config.ts";
import { compilePolicy } from "../egress/compile-policy.ts";
import type { PooledShape } from "../manager/warm-pool.ts";
import { Bounds } from "./bounds.ts";

/**
 * The policy of the whole server, with nothing left out but the number of sandboxes: what was not set is what is safe
 * and what the machine has.
 */
export async function serverPolicy(
  { drivers = isolatingDrivers, egress = internetOnly, limits }: AccessPolicy,
  dataDir: string,
): Promise<AccessPolicy & { egress: typeof egress }> {
  compilePolicy(egress);
  return { drivers, egress, limits: { ...(await machineLimits(dataDir)), ...limits } };
}

/** What is kept ready has to be within the server's policy, too: a key that has no narrower one finds it. */
export function pooledShapes(pool: Config["pool"], policy: AccessPolicy): PooledShape[] {
  const bounds = new Bounds(policy);
  const what = "start with this setting pool";
  return pool.map(({ count, template, driver, limits }) => {
    bounds.assertDriver(driver, what);
    return { shape: { template, driver, limits: bounds.limitsFor(limits, what) }, count };
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
