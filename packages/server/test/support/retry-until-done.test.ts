import { expect, test } from "vitest";
import { retryUntilDone } from "../../src/support/retry-until-done.ts";

const quickly = { firstMs: 1, longestMs: 2 };

test("retries until it is done, and reports each failure", async () => {
  const failures: unknown[] = [];
  const outcomes = [new Error("one"), false, new Error("two"), true, true];
  await retryUntilDone(
    { ...quickly, signal: new AbortController().signal, onFailure: (error) => failures.push(error) },
    async () => {
      const outcome = outcomes.shift();
      if (outcome instanceof Error) throw outcome;
      return outcome ?? true;
    },
  );
  expect(outcomes).toEqual([true]);
  expect(failures).toEqual([new Error("one"), new Error("two")]);
});

test.for([{ afterMs: 60_000 }, { firstMs: 60_000 }])("ends with its signal while it waits: %j", async (wait) => {
  const stop = new AbortController();
  const tried = retryUntilDone(
    { ...quickly, ...wait, signal: stop.signal, onFailure: () => undefined },
    async () => false,
  );
  setImmediate(() => stop.abort());
  await expect(tried).rejects.toMatchObject({ name: "AbortError" });
});
