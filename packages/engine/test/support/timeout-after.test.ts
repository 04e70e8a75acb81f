import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { timeoutAfter } from "../../src/support/timeout-after.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("time counts from the moment it begins", async () => {
  let begin = (): void => undefined;
  const signal = timeoutAfter(new Promise<void>((resolve) => (begin = resolve)), 100);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(signal.aborted).toBe(false);
  begin();
  await vi.advanceTimersByTimeAsync(99);
  expect(signal.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(signal.aborted).toBe(true);
});

test("without a beginning the signal never aborts", async () => {
  const signal = timeoutAfter(Promise.reject(new Error("no")), 100);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(signal.aborted).toBe(false);
});
