import { readFile } from "node:fs/promises";
import { loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** How long the processors are watched for one reading. They count in hundredths of a second. */
const watchMs = 200;
/** Above this share others are at work and results are worth less. */
const quietShare = 0.2;
/** What one benchmark waits for others altogether. */
const patienceMs = 120_000;

export interface Load {
  /** Over one, five and fifteen minutes; our own work is in it. */
  average: number[];
  /**
   * Share of all processors' time that was spent while we did nothing, 0 to 1: the mean of the readings before each
   * round.
   */
  busyShare: number;
  isQuiet: boolean;
}

/** Sees that rounds begin while the machine is quiet, as far as patience goes, and remembers how it was. */
export class QuietWatch {
  #signal: AbortSignal;
  #emit: (text: string) => void;
  #leftMs = patienceMs;
  #shares: number[] = [];

  constructor(signal: AbortSignal, emit: (text: string) => void) {
    this.#signal = signal;
    this.#emit = emit;
  }

  /** To be called while nothing of ours is at work. */
  async wait(): Promise<void> {
    for (;;) {
      const share = await readBusyShare(this.#signal);
      if (share <= quietShare || this.#leftMs <= 0) {
        this.#shares.push(share);
        return;
      }
      this.#leftMs -= watchMs;
      this.#emit(`waiting for a quiet machine (${Math.round(share * 100)} % busy)`);
    }
  }

  get load(): Load {
    const busyShare = this.#shares.reduce((sum, share) => sum + share, 0) / Math.max(1, this.#shares.length);
    return { average: loadavg(), busyShare, isQuiet: busyShare <= quietShare };
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
