import { expect, test } from "vitest";
import { pollUntil } from "../../src/support/poll-until.ts";

test("a check that is true at once is asked once", async () => {
  let asked = 0;
  expect(await pollUntil(() => ++asked > 0, { deadlineMs: 0 })).toBe(true);
  expect(asked).toBe(1);
});

test("the check is repeated until it is true", async () => {
  let asked = 0;
  expect(await pollUntil(async () => ++asked === 4, { deadlineMs: 60_000 })).toBe(true);
});

test("polling ends at the deadline, after a last check", async () => {
  let lastMs = 0;
  const startMs = performance.now();
  const check = (): boolean => {
    lastMs = performance.now();
    return false;
  };
  expect(await pollUntil(check, { deadlineMs: 20 })).toBe(false);
  expect(lastMs - startMs).toBeGreaterThanOrEqual(20);
});

test("an abort throws the reason of the signal", async () => {
  const controller = new AbortController();
  const polled = pollUntil(() => false, { deadlineMs: 60_000, signal: controller.signal });
  controller.abort(new Error("enough"));
  await expect(polled).rejects.toThrow("enough");
});

test("an error of the check is thrown to the caller", async () => {
  const check = (): boolean => {
    throw new Error("broken");
  };
  await expect(pollUntil(check, { deadlineMs: 10 })).rejects.toThrow("broken");
});
