import { deadlineAfter } from "@atoll/protocol";

/** Returns a signal that aborts when this much time has passed since `begin` resolved. */
export function timeoutAfter(begin: Promise<unknown>, ms: number): AbortSignal {
  const controller = new AbortController();
  const start = (): void => {
    const deadline = deadlineAfter(ms);
    deadline.addEventListener("abort", () => controller.abort(deadline.reason), { once: true });
  };
  begin.then(start, () => undefined);
  return controller.signal;
}
