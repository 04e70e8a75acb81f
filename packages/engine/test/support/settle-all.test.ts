import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { settleAll } from "../../src/support/settle-all.ts";

test("results come in the order of the work", async () => {
  expect(await settleAll([nextTurn("late"), Promise.resolve("soon"), 3])).toEqual(["late", "soon", 3]);
});

test("a failure is thrown when the other work is done", async () => {
  let isDone = false;
  const slow = nextTurn().then(() => {
    isDone = true;
  });
  await expect(settleAll([Promise.reject(new Error("no")), slow])).rejects.toThrow("no");
  expect(isDone).toBe(true);
});
