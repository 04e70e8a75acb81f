import { environment } from "#environment";

const firstMs = 50;
const longestMs = 5_000;

/** Grows exponentially, half of it at random, so that the clients of a restarted server do not all come at once. */
export function backoffMs(attempt: number): number {
  const full = Math.min(longestMs, firstMs * 2 ** Math.min(attempt, 20));
  return full / 2 + (Math.random() * full) / 2;
}

/** Resolves after the time; rejects with the signal's reason if that aborts. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Calls back after the time, unless the program has ended by then. */
export function later(ms: number, call: () => void): () => void {
  const timer = setTimeout(call, ms);
  environment.detachTimer(timer);
  return () => clearTimeout(timer);
}
