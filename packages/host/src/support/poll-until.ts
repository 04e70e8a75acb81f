import { setTimeout as delay } from "node:timers/promises";

const firstIntervalMs = 1;
const longestIntervalMs = 50;

export interface PollUntilOptions {
  /** How long to go on looking, from now. */
  deadlineMs: number;
  /** Absent in clean-up, which must go on after the caller has left. */
  signal?: AbortSignal;
}

/**
 * Looks again and again until `check` is true: resolves to true then, to false when the deadline has passed. `check`
 * runs at least once, and once more at the deadline.
 *
 * For what the kernel does not announce: cgroup v1 has no event for "empty", and a process group that is not made of
 * our own children has none either. Whatever has an event, a promise or a file descriptor waits for that and not here.
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
