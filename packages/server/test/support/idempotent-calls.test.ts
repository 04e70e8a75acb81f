import { expect, test } from "vitest";
import { idempotencyMark, IdempotentCalls } from "../../src/support/idempotent-calls.ts";

function counted(): { calls: IdempotentCalls<number>; work: () => Promise<number>; done: () => number } {
  let count = 0;
  return { calls: new IdempotentCalls(), work: () => Promise.resolve((count += 1)), done: () => count };
}

test("the same key and request happen once, also at the same time", async () => {
  const { calls, work, done } = counted();
  const mark = idempotencyMark("me", "key", { a: 1, b: [2] });
  const again = idempotencyMark("me", "key", { b: [2], a: 1 });
  expect(await Promise.all([calls.run(mark, work), calls.run(again, work)])).toEqual([1, 1]);
  expect(await calls.run(mark, work)).toBe(1);
  expect(done()).toBe(1);
});

test("the same key with another request is refused", async () => {
  const { calls, work, done } = counted();
  await calls.run(idempotencyMark("me", "key", { a: 1 }), work);
  expect(() => calls.run(idempotencyMark("me", "key", { a: 2 }), work)).toThrow(
    expect.objectContaining({ code: "invalid_argument" }),
  );
  expect(done()).toBe(1);
});

test("keys of different clients are independent", async () => {
  const { calls, work, done } = counted();
  await calls.run(idempotencyMark("me", "key", { a: 1 }), work);
  await calls.run(idempotencyMark("you", "key", { a: 2 }), work);
  await calls.run(undefined, work);
  await calls.run(undefined, work);
  expect(done()).toBe(4);
});

test("a failed call may be retried", async () => {
  const { calls, work } = counted();
  const mark = idempotencyMark("me", "key", {});
  await expect(calls.run(mark, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
  expect(await calls.run(mark, work)).toBe(1);
});

test("a call of an earlier server is known, until it is forgotten", async () => {
  const { calls, work } = counted();
  const mark = idempotencyMark("me", "key", {});
  calls.restore(mark, 42);
  expect(await calls.run(mark, work)).toBe(42);
  calls.forget(mark);
  expect(await calls.run(mark, work)).toBe(1);
});
