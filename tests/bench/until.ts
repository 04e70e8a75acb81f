/** No single step takes longer than this on a machine that works. */
const stepDeadlineMs = 60_000;

/** Waits for a promise, until an interrupt or the deadline. A step that hangs is left to the clean-up. */
export async function until<T>(promise: Promise<T>, signal: AbortSignal, what: string): Promise<T> {
  const deadline = AbortSignal.timeout(stepDeadlineMs);
  const stop = AbortSignal.any([signal, deadline]);
  const { promise: stopped, listener } = rejectionOf(stop);
  try {
    return await Promise.race([promise, stopped]);
  } catch (error) {
    signal.throwIfAborted();
    throw deadline.aborted
      ? new Error(`Cannot go on: no ${what} within ${stepDeadlineMs} ms`, { cause: error })
      : error;
  } finally {
    stop.removeEventListener("abort", listener);
  }
}

function rejectionOf(signal: AbortSignal): { promise: Promise<never>; listener: () => void } {
  let listener = (): void => undefined;
  const promise = new Promise<never>((_, reject) => {
    listener = () => reject(signal.reason as Error);
    signal.addEventListener("abort", listener, { once: true });
    if (signal.aborted) listener();
  });
  return { promise, listener };
}
