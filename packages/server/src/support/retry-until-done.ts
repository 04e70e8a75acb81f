import { setTimeout as delay } from "node:timers/promises";

export interface RetryUntilDoneOptions {
  signal: AbortSignal;
  /** Before the first attempt; none if not given. */
  afterMs?: number;
  /** From the first attempt to the second; then always twice as long, up to `longestMs`. */
  firstMs: number;
  longestMs: number;
  /** An attempt has failed, and there will be another one. */
  onFailure: (error: unknown) => void;
}

/**
 * Tries until an attempt says that it is done, with growing pauses. For what nobody announces, as a store that can be
 * reached again. Rejects when the signal is aborted.
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
