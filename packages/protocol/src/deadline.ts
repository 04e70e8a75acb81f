/** A single timer cannot wait longer than this. */
const longestTimerMs = 2 ** 31 - 1;

/**
 * Returns a signal that aborts with a `TimeoutError` after `ms`, without keeping the program alive for it. It replaces
 * `AbortSignal.timeout`: Node forgets that timer when garbage is collected while only an `AbortSignal.any` refers to
 * it, and what should have timed out then waits for ever.
 */
export function deadlineAfter(ms: number): AbortSignal {
  const controller = new AbortController();
  // The runtime refers to the timer, and the timer to the controller, so neither is collected.
  const timer: unknown = setTimeout(
    () => controller.abort(new DOMException(`${ms} ms have passed`, "TimeoutError")),
    Math.min(ms, longestTimerMs),
  );
  // In browsers a timer is a number, and does not keep the page open.
  if (typeof timer === "object" && timer !== null && "unref" in timer) (timer as { unref(): void }).unref();
  return controller.signal;
}
