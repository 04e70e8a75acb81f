import { readFile } from "node:fs/promises";
import { loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** The duration of one reading of the processors' counters, whose unit is a hundredth of a second. */
const watchMs = 200;
/** Above this share other programs are busy, and results are less reliable. */
const quietShare = 0.2;
/** The total time for which one benchmark waits for a quiet machine. */
const patienceMs = 120_000;

export interface Load {
  /** The load average over one, five and fifteen minutes, which includes our own work. */
  average: number[];
  /**
   * The share of all processors' time, 0 to 1, that was spent while we did nothing: the mean of the readings before
   * each round.
   */
  busyShare: number;
  isQuiet: boolean;
}

/** Lets rounds start while the machine is quiet, as long as its patience lasts, and records how busy it was. */
export class QuietWatch {
  #signal: AbortSignal;
  #emit: (text: string) => void;
  #leftMs = patienceMs;
  #shares: number[] = [];

  constructor(signal: AbortSignal, emit: (text: string) => void) {
    this.#signal = signal;
    this.#emit = emit;
  }

  /** Waits until the machine is quiet. The caller must do no work of its own at this time. */
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

/**
 * Sums the ticks of all processors. Waiting for a disk counts as idle; time stolen by the host of this machine does
 * not.
 */
export function parseProcessorTimes(stat: string): { total: number; idle: number } {
  const fields = /^cpu +(.*)$/m.exec(stat)?.[1]?.trim().split(/ +/).map(Number) ?? [];
  // The fields are user nice system idle iowait irq softirq steal; user already contains guest time.
  const times = fields.slice(0, 8);
  return { total: times.reduce((sum, time) => sum + time, 0), idle: (times[3] ?? 0) + (times[4] ?? 0) };
}
