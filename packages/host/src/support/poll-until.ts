import { setTimeout as delay } from "node:timers/promises";

const firstIntervalMs = 1;
const longestIntervalMs = 50;

export interface PollUntilOptions {
  /** How long to poll, from now. */
  deadlineMs: number;
  /** Clean-up passes no signal, because it must continue after the caller has left. */
  signal?: AbortSignal;
}

/**
 * Calls `check` again and again: resolves to true when `check` returns true, and to false when the deadline has passed.
 * `check` runs at least once, and once more at the deadline.
 *
 * This is for changes that the kernel does not announce: cgroup v1 has no event for "empty", and neither has a process
 * group that is not made of our own children. A caller that has an event, a promise or a file descriptor waits for that
 * instead.
 */
export async function pollUntil(
  check: () => boolean | Promise<boolean>,
  { deadlineMs, signal }: PollUntilOptions,
): Promise<boolean> {
  const endMs = performance.now() + deadlineMs;
  for (let intervalMs = firstIntervalMs; ; intervalMs = Math.min(intervalMs * 2, longestIntervalMs)) {
    signal?.throwIfAborted();
    if (await check()) return true;
    const leftMs = endMs - performance.now();
    if (leftMs <= 0) return false;
    try {
      await delay(Math.min(intervalMs, leftMs), undefined, signal === undefined ? {} : { signal });
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    }
  }
}
