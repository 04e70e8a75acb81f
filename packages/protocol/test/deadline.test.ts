import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { deadlineAfter } from "../src/index.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Nobody but the combination has the deadline when this returns. */
function waitCombined(ms: number): Promise<unknown> {
  return new Promise((resolve) => {
    const signal = AbortSignal.any([new AbortController().signal, deadlineAfter(ms)]);
    signal.addEventListener("abort", () => resolve(signal.reason));
  });
}

test("a deadline comes, also if only a combination of signals has it and garbage is collected meanwhile", async () => {
  const reason = waitCombined(50);
  collectGarbage();
  // What is only weakly held goes when the turn in which it was made is over.
  await new Promise((resolve) => setImmediate(resolve));
  collectGarbage();
  expect(await reason).toMatchObject({ name: "TimeoutError", message: "50 ms have passed" });
});

test("a deadline beyond what a timer can wait for does not come at once", async () => {
  const signal = deadlineAfter(Number.MAX_SAFE_INTEGER);
  await new Promise((resolve) => setImmediate(resolve));
  expect(signal.aborted).toBe(false);
});
