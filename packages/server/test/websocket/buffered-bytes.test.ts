import { expect, test } from "vitest";
import { BufferedBytes } from "../../src/websocket/buffered-bytes.ts";

test("bytes are reserved up to a limit, and released once", () => {
  const held = new BufferedBytes(100);
  const release = held.take(60);
  expect(held.take(41)).toBeUndefined();
  expect(held.take(40)).toBeDefined();
  release?.();
  release?.();
  expect(held.take(61)).toBeUndefined();
  expect(held.take(60)).toBeDefined();
});
