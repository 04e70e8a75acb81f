import { uptime } from "node:os";
import { performance } from "node:perf_hooks";

/** The only source of time for leases. It does not know the time of day, on which no two servers agree. */
export interface Clock {
  /** Milliseconds since some moment. It never goes back, and continues while the process or the machine is stopped. */
  now(): number;
  /** Calls back once, not before `delayMs` have passed. The returned function cancels it. */
  after(delayMs: number, callback: () => void): () => void;
}

/** The longest time that one timer of Node can wait. */
const longestTimerMs = 2 ** 31 - 1;

/** The uptime comes in hundredths of a second; a smaller difference does not mean that the machine slept. */
const noticeableSleepMs = 100;

export interface TimeSources {
  /** Stands still while the machine is suspended. */
  monotonicMs: () => number;
  /** Continues while the machine is suspended, and is coarse. */
  uptimeMs: () => number;
}

/**
 * Returns a clock that includes the time that the machine was suspended. An owner with the monotonic clock alone would
 * go on after a wake-up for as long as it had left before.
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
