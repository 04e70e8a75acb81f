import { readFile } from "node:fs/promises";
import { loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** How long the processors are watched for one reading. */
const watchMs = 500;
/** Above this share others are at work and results are worth less. */
const quietShare = 0.2;
/** Others get this long to finish. */
const patienceMs = 30_000;

export interface Load {
  /** Over one, five and fifteen minutes. */
  average: number[];
  /** Share of all processors' time that was spent on something, before we began: 0 to 1. */
  busyShare: number;
  isQuiet: boolean;
}

/** Waits a while for a quiet machine, and says in any case how it was. To be called when we do nothing ourselves. */
export async function awaitQuiet(signal: AbortSignal, tell: (text: string) => void): Promise<Load> {
  const deadlineMs = performance.now() + patienceMs;
  for (;;) {
    const busyShare = await readBusyShare(signal);
    const isQuiet = busyShare <= quietShare;
    if (isQuiet || performance.now() > deadlineMs) return { average: loadavg(), busyShare, isQuiet };
    tell(`waiting for a quiet machine (${Math.round(busyShare * 100)} % busy)`);
  }
}

async function readBusyShare(signal: AbortSignal): Promise<number> {
  const before = parseProcessorTimes(await readFile("/proc/stat", "utf8"));
  await sleep(watchMs, undefined, { signal });
  const after = parseProcessorTimes(await readFile("/proc/stat", "utf8"));
  const total = after.total - before.total;
  return total === 0 ? 0 : (total - (after.idle - before.idle)) / total;
}

/** Ticks of all processors together. Waiting for a disk is idle; time stolen by the host of this machine is not. */
export function parseProcessorTimes(stat: string): { total: number; idle: number } {
  const fields = /^cpu +(.*)$/m.exec(stat)?.[1]?.trim().split(/ +/).map(Number) ?? [];
  // user nice system idle iowait irq softirq steal; guest time is in user already.
  const times = fields.slice(0, 8);
  return { total: times.reduce((sum, time) => sum + time, 0), idle: (times[3] ?? 0) + (times[4] ?? 0) };
}
