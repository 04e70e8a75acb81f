import { setTimeout as delay } from "node:timers/promises";

const firstPauseMs = 50;
const longestPauseMs = 5_000;

/** Waits a random part of a time that doubles with each attempt, so that many clients do not retry at the same time. */
export async function pauseBeforeRetry(attempt: number, signal: AbortSignal): Promise<void> {
  const ceilingMs = Math.min(longestPauseMs, firstPauseMs * 2 ** attempt);
  try {
    await delay(ceilingMs * (0.5 + Math.random() / 2), undefined, { signal });
  } catch {
    signal.throwIfAborted();
  }
}

/** Retries what failed for a reason that may pass, and throws the last failure. */
export async function retried<T>(
  attempts: number,
  signal: AbortSignal,
  canPass: (error: unknown) => boolean,
  work: () => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      signal.throwIfAborted();
      if (attempt >= attempts || !canPass(error)) throw error;
      await pauseBeforeRetry(attempt, signal);
    }
  }
}
