import { cpuPeriodMs, type CgroupUsage } from "./cgroup.ts";

/** A program that starts takes all that it gets for a moment. What lasts this long is worth telling. */
const windowMs = 5_000;
/** The share of periods in which a sandbox has to wait before its limit counts as hit. */
const hitShare = 0.25;

type CpuCounters = Pick<CgroupUsage, "cpuMs" | "throttledPeriods">;

/** What one sandbox did with its CPU time, stretch by stretch. */
export class CpuWindow {
  #start: { atMs: number; cpuMs: number; throttledPeriods: number } | undefined;

  /**
   * At the end of a stretch the cores that were used on average, and whether it would have used more. Undefined before,
   * and where the host does not count.
   */
  look({ cpuMs, throttledPeriods }: CpuCounters): { cpus: number; isHit: boolean } | undefined {
    if (cpuMs === undefined || throttledPeriods === undefined) return undefined;
    const atMs = performance.now();
    const start = (this.#start ??= { atMs, cpuMs, throttledPeriods });
    const elapsedMs = atMs - start.atMs;
    if (elapsedMs < windowMs) return undefined;
    this.#start = { atMs, cpuMs, throttledPeriods };
    // Not of the periods that the kernel counts: it counts those in which the group was busy.
    const share = ((throttledPeriods - start.throttledPeriods) * cpuPeriodMs) / elapsedMs;
    return { cpus: (cpuMs - start.cpuMs) / elapsedMs, isHit: share >= hitShare };
  }
}
