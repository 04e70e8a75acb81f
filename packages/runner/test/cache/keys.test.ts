import { expect, test } from "vitest";
import { KeyedLock } from "../../src/cache/keyed-lock.ts";
import { keyOf } from "../../src/cache/stable-json.ts";

test("a key does not depend on the order of members and depends on everything else", () => {
  expect(keyOf({ a: 1, b: { c: [1, 2], d: undefined } })).toBe(keyOf({ b: { c: [1, 2] }, a: 1 }));
  expect(keyOf({ a: [1, 2] })).not.toBe(keyOf({ a: [2, 1] }));
  expect(keyOf({ a: "1" })).not.toBe(keyOf({ a: 1 }));
  expect(keyOf({})).toMatch(/^[0-9a-f]{40}$/);
});

test("one holder per key at a time, in the order of asking, and keys do not wait for each other", async () => {
  const locks = new KeyedLock();
  const order: string[] = [];
  const first = await locks.acquire("a");
  const waiting = ["second", "third"].map(async (name) => {
    using _lock = await locks.acquire("a");
    order.push(name);
    await Promise.resolve();
    order.push(`${name} ends`);
  });
  using _other = await locks.acquire("b");
  order.push("first ends");
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  await Promise.all(waiting);
  expect(order).toEqual(["first ends", "second", "second ends", "third", "third ends"]);
});
