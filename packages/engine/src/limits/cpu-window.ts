import { cpuPeriodMs, type CgroupUsage } from "@atoll/host";

/** A starting program uses all CPU time that it gets for a moment. Only a state that lasts this long is reported. */
const windowMs = 5_000;
/** The share of periods in which a sandbox has to wait before its limit counts as hit. */
const hitShare = 0.25;

type CpuCounters = Pick<CgroupUsage, "cpuMs" | "throttledPeriods">;

/** Measures what one sandbox does with its CPU time, window by window. */
export class CpuWindow {
  #start: { atMs: number; cpuMs: number; throttledPeriods: number } | undefined;

  /**
   * Returns, at the end of a window, the cores that were used on average, and whether the sandbox would have used more.
   * Returns undefined before that, and where the host does not count.
   */
  look({ cpuMs, throttledPeriods }: CpuCounters): { cpus: number; isHit: boolean } | undefined {
    if (cpuMs === undefined || throttledPeriods === undefined) return undefined;
    const atMs = performance.now();
    const start = (this.#start ??= { atMs, cpuMs, throttledPeriods });
    const elapsedMs = atMs - start.atMs;
    if (elapsedMs < windowMs) return undefined;
    this.#start = { atMs, cpuMs, throttledPeriods };
    // The number of periods follows from the time, because the kernel counts only those in which the group was busy.
    const share = ((throttledPeriods - start.throttledPeriods) * cpuPeriodMs) / elapsedMs;
    return { cpus: (cpuMs - start.cpuMs) / elapsedMs, isHit: share >= hitShare };
  }
}
