import { expect, test } from "vitest";
import { parseRange } from "../../src/http/byte-range.ts";

test.for([
  ["bytes=0-0", { offset: 0, length: 1 }],
  ["bytes=2-5", { offset: 2, length: 4 }],
  ["bytes=2-", { offset: 2, length: 8 }],
  ["bytes=2-99", { offset: 2, length: 8 }],
  ["bytes=-3", { offset: 7, length: 3 }],
  ["bytes=-99", { offset: 0, length: 10 }],
  ["Bytes = 9-9", { offset: 9, length: 1 }],
  ["bytes=10-", "unsatisfiable"],
  ["bytes=99-100", "unsatisfiable"],
  ["bytes=-0", "unsatisfiable"],
  ["bytes=5-2", undefined],
  ["bytes=0-1,4-5", undefined],
  ["bytes=-", undefined],
  ["bytes=", undefined],
  ["bytes=a-b", undefined],
  ["bytes=--1", undefined],
  ["lines=0-1", undefined],
  ["bytes=99999999999999999999-", undefined],
  [undefined, undefined],
] as const)("of ten bytes, %s is %j", ([header, range]) => {
  expect(parseRange(header, 10)).toEqual(range);
});

test.for(["bytes=0-", "bytes=-5", "bytes=0-0"])("an empty file has no range %s", (header) => {
  expect(parseRange(header, 0)).toBe("unsatisfiable");
});
