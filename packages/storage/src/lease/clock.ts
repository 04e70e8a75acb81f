import { uptime } from "node:os";
import { performance } from "node:perf_hooks";

/** The only source of time for leases. Says nothing about the time of day: no two servers agree on that. */
export interface Clock {
  /** Milliseconds since some moment. Never goes back, and goes on while the process or the machine is stopped. */
  now(): number;
  /** Calls back once, not before `delayMs` have passed. The result takes it back. */
  after(delayMs: number, callback: () => void): () => void;
}

/** Node cannot wait longer than this at once. */
const longestTimerMs = 2 ** 31 - 1;

/** The uptime comes in hundredths of a second; a smaller difference is no sleep of the machine. */
const noticeableSleepMs = 100;

export interface TimeSources {
  /** Stands still while the machine is suspended. */
  monotonicMs: () => number;
  /** Does not, and is coarse. */
  uptimeMs: () => number;
}

/**
 * An owner that woke up with the monotonic clock alone would go on for as long as it had left when the machine fell
 * asleep.
 */
export function awakeTime({ monotonicMs, uptimeMs }: TimeSources): () => number {
  const apartMs = (): number => uptimeMs() - monotonicMs();
  const apartAtStartMs = apartMs();
  let sleptMs = 0;
  return () => {
    const asleepMs = apartMs() - apartAtStartMs;
    if (asleepMs - sleptMs > noticeableSleepMs) sleptMs = asleepMs;
    return monotonicMs() + sleptMs;
  };
}

export const systemClock: Clock = {
  now: awakeTime({ monotonicMs: () => performance.now(), uptimeMs: () => uptime() * 1000 }),
  after: (delayMs, callback) => {
    const timer = setTimeout(callback, Math.min(Math.max(0, Math.ceil(delayMs)), longestTimerMs));
    return () => clearTimeout(timer);
  },
};

/** Waits until the time has passed or one of the signals is aborted; it never rejects. */
export function pause(clock: Clock, delayMs: number, ...signals: (AbortSignal | undefined)[]): Promise<void> {
  return new Promise((resolve) => {
    if (signals.some((signal) => signal?.aborted)) return resolve();
    const finish = (): void => {
      cancel();
      for (const signal of signals) signal?.removeEventListener("abort", finish);
      resolve();
    };
    const cancel = clock.after(Math.max(0, delayMs), finish);
    for (const signal of signals) signal?.addEventListener("abort", finish, { once: true });
  });
}
