/** Timers wait no longer than this at once. */
const longestTimerMs = 2 ** 31 - 1;

/**
 * Aborts with a `TimeoutError` when so much time has passed; no program is kept alive for it. In place of
 * `AbortSignal.timeout`, whose timer Node forgets when the garbage collector runs while an `AbortSignal.any` is all
 * that has it: what it should have ended waits for ever then.
 */
export function deadlineAfter(ms: number): AbortSignal {
  const controller = new AbortController();
  // The timer has the controller, and the runtime has the timer.
  const timer: unknown = setTimeout(
    () => controller.abort(new DOMException(`${ms} ms have passed`, "TimeoutError")),
    Math.min(ms, longestTimerMs),
  );
  // Browsers have numbers in place of timers, and end without asking.
  if (typeof timer === "object" && timer !== null && "unref" in timer) (timer as { unref(): void }).unref();
  return controller.signal;
}
