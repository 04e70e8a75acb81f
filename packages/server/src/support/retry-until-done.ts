import { setTimeout as delay } from "node:timers/promises";

export interface RetryUntilDoneOptions {
  signal: AbortSignal;
  /** The delay before the first attempt; none if not given. */
  afterMs?: number;
  /** The delay between the first two attempts; each later one is twice as long, up to `longestMs`. */
  firstMs: number;
  longestMs: number;
  /** Called when an attempt has failed and there will be another one. */
  onFailure: (error: unknown) => void;
}

/**
 * Retries until an attempt returns true, with growing delays. It is for conditions that are not announced, such as a
 * store that can be reached again. Rejects when the signal aborts.
 */
export async function retryUntilDone(options: RetryUntilDoneOptions, attempt: () => Promise<boolean>): Promise<void> {
  const { signal, afterMs, firstMs, longestMs, onFailure } = options;
  if (afterMs !== undefined) await delay(afterMs, undefined, { signal });
  for (let pauseMs = firstMs; ; pauseMs = Math.min(2 * pauseMs, longestMs)) {
    signal.throwIfAborted();
    try {
      if (await attempt()) return;
    } catch (error) {
      signal.throwIfAborted();
      onFailure(error);
    }
    await delay(pauseMs, undefined, { signal });
  }
}
