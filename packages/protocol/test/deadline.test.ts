import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { deadlineAfter } from "../src/index.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** When this returns, only the combined signal refers to the deadline. */
function waitCombined(ms: number): Promise<unknown> {
  return new Promise((resolve) => {
    const signal = AbortSignal.any([new AbortController().signal, deadlineAfter(ms)]);
    signal.addEventListener("abort", () => resolve(signal.reason));
  });
}

test("a deadline fires even if garbage is collected while only a combined signal refers to it", async () => {
  const reason = waitCombined(50);
  collectGarbage();
  // An object that is only weakly referenced is collected at the earliest after the turn in which it was made.
  await new Promise((resolve) => setImmediate(resolve));
  collectGarbage();
  expect(await reason).toMatchObject({ name: "TimeoutError", message: "50 ms have passed" });
});

test("a deadline beyond what a timer can wait for does not fire at once", async () => {
  const signal = deadlineAfter(Number.MAX_SAFE_INTEGER);
  await new Promise((resolve) => setImmediate(resolve));
  expect(signal.aborted).toBe(false);
});
