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

/**
 * Node's monotonic clock stands still while the machine is suspended, the uptime does not. An owner that woke up with the first one
 * alone would go on for as long as it had left when it fell asleep.
 */
function createSystemClock(): Clock {
  const offsetMs = (): number => uptime() * 1000 - performance.now();
  const startOffsetMs = offsetMs();
  let sleptMs = 0;
  return {
    now: () => {
      const apartMs = offsetMs() - startOffsetMs;
      if (apartMs - sleptMs > noticeableSleepMs) sleptMs = apartMs;
      return performance.now() + sleptMs;
    },
    after: (delayMs, callback) => {
      const timer = setTimeout(callback, Math.min(Math.max(0, Math.ceil(delayMs)), longestTimerMs));
      return () => clearTimeout(timer);
    },
  };
}

export const systemClock: Clock = createSystemClock();

/** Waits until the time has passed or one of the signals is aborted, and says which; it never rejects. */
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
