import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { deadlineAfter, firstToAbort } from "../src/index.ts";

const listening = (signal: AbortSignal): number => getEventListeners(signal, "abort").length;

test("it aborts with the reason of the first one, and hears of no other", () => {
  const [one, two] = [new AbortController(), new AbortController()];
  const first = firstToAbort(one.signal, undefined, two.signal);
  expect(first.aborted).toBe(false);
  two.abort("two");
  one.abort("one");
  expect(first.reason).toBe("two");
});

test("of those that have aborted before, the first that was named counts", () => {
  const waiting = new AbortController();
  const first = firstToAbort(waiting.signal, AbortSignal.abort("one"), AbortSignal.abort("two"));
  expect(first.reason).toBe("one");
  expect(listening(waiting.signal)).toBe(0);
});

test("nothing is left on a signal that lasts, when another has aborted or it is disposed of", async () => {
  const lasting = new AbortController();
  for (let round = 0; round < 1000; round += 1) {
    using disposed = firstToAbort(lasting.signal, new AbortController().signal);
    const over = new AbortController();
    const aborted = firstToAbort(lasting.signal, over.signal);
    over.abort();
    expect([disposed.aborted, aborted.aborted]).toEqual([false, true]);
  }
  expect(listening(lasting.signal)).toBe(0);
  const late = firstToAbort(lasting.signal, deadlineAfter(1));
  await new Promise((resolve) => late.addEventListener("abort", resolve));
  expect(listening(lasting.signal)).toBe(0);
});

test("without any it never aborts", () => {
  expect(firstToAbort(undefined).aborted).toBe(false);
});
