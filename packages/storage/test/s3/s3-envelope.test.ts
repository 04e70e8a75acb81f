import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { canBeReplaced, isNoObject, isTombstone, mayBeTombstone, newTombstone } from "../../src/s3/s3-envelope.ts";

test("a tombstone is shorter than any object, recognised by its bytes, and never the same twice", () => {
  const one = newTombstone();
  expect(isNoObject(one.length)).toBe(true);
  expect(mayBeTombstone(one.length)).toBe(true);
  expect(isTombstone(one)).toBe(true);
  expect(canBeReplaced(one)).toBe(true);
  expect(newTombstone().equals(one)).toBe(false);
});

test.for([
  ["nothing", Buffer.alloc(0)],
  ["a word", Buffer.from("_SUCCESS")],
  ["as many other bytes", randomBytes(newTombstone().length)],
  ["one byte less", newTombstone().subarray(0, -1)],
  ["one byte more", Buffer.concat([newTombstone(), Buffer.alloc(1)])],
] as const)("%s is not a tombstone", ([, bytes]) => {
  expect(isTombstone(bytes)).toBe(false);
});

test("an object may replace a tombstone of an earlier version, and no other short entry", () => {
  expect(canBeReplaced(Buffer.from("7f45a1b2c3d4e5f6", "hex"))).toBe(true);
  for (const length of [0, 7, 9, 15]) expect(canBeReplaced(Buffer.alloc(length))).toBe(false);
});

test.for(['{"a": 1}', "12345678", "1234567\n", "_SUCCESS"])("%j of another program is not replaced", (word) => {
  expect(word).toHaveLength(8);
  expect(canBeReplaced(Buffer.from(word))).toBe(false);
});
