import { SandboxError } from "@atoll/protocol";
import type { Clock } from "./clock.ts";

export interface CallBounds {
  clock: Clock;
  /** The time after which the call counts as unanswered. */
  limitMs: number;
  signal?: AbortSignal | undefined;
  /** What is called, for the message. */
  place: string;
  key: string;
}

/**
 * Settles in time even if the call ignores its signal. What the call asked for may have happened, or may still happen.
 */
export function boundedCall<T>(bounds: CallBounds, call: (stop: AbortSignal) => Promise<T>): Promise<T> {
  const { clock, limitMs, signal, place, key } = bounds;
  const controller = new AbortController();
  return new Promise<T>((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const giveUp = (reason: unknown): void => {
      controller.abort(reason);
      reject(reason);
    };
    const leave = (): void => giveUp(signal?.reason);
    const cancel = clock.after(limitMs, () =>
      giveUp(
        new SandboxError("unavailable", `Cannot reach ${key}: ${place} does not answer`, { details: { key, limitMs } }),
      ),
    );
    signal?.addEventListener("abort", leave, { once: true });
    void call(controller.signal)
      .then(resolve, reject)
      .finally(() => {
        cancel();
        signal?.removeEventListener("abort", leave);
      });
  });
}
