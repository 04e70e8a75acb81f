import { describe, expect, test } from "vitest";
import { parseDuration } from "../../src/input/duration.ts";
import { wholeNumber } from "../../src/input/number.ts";
import { collectPairs } from "../../src/input/pair.ts";
import { parsePlace } from "../../src/input/place.ts";
import { resolvePrefix } from "../../src/input/resolve-prefix.ts";
import { parseSize } from "../../src/input/size.ts";

describe("a duration", () => {
  test.for([
    ["500ms", 500],
    ["30s", 30_000],
    ["1m30s", 90_000],
    ["2h", 7_200_000],
    ["1d", 86_400_000],
    ["1.5s", 1_500],
    ["10", 10_000],
  ] as const)("%s is %d ms", ([text, ms]) => {
    expect(parseDuration(text)).toBe(ms);
  });

  test.for(["", "0", "0s", "-1s", "5 s", "s", "1x", "1s!", "Infinity"])("%j is refused", (text) => {
    expect(() => parseDuration(text)).toThrow("as a duration");
  });
});

describe("a size", () => {
  test.for([
    ["1048576", 1_048_576],
    ["512m", 512 * 1024 * 1024],
    ["2GiB", 2 * 1024 ** 3],
    ["1.5k", 1_536],
    ["4B", 4],
  ] as const)("%s is %d bytes", ([text, bytes]) => {
    expect(parseSize(text)).toBe(bytes);
  });

  test.for(["", "m", "-1", "1x", "1 g"])("%j is refused", (text) => {
    expect(() => parseSize(text)).toThrow("as a size");
  });
});

test("a number outside of its range is refused with the range", () => {
  expect(wholeNumber("a port", 1, 65_535)("8000")).toBe(8_000);
  expect(() => wholeNumber("a port", 1, 65_535)("65536")).toThrow('Cannot read "65536" as a port');
});

test("a variable may have = in its value, and needs a name", () => {
  const collect = collectPairs("a variable");
  expect(collect("A=b=c", collect("B=", undefined))).toEqual({ A: "b=c", B: "" });
  expect(() => collect("=x", undefined)).toThrow("as a variable");
});

test.for([
  ["4k2:/tmp/a", { sandbox: "4k2", path: "/tmp/a" }],
  ["4k2:", { sandbox: "4k2", path: "." }],
  ["./4k2:a", { sandbox: undefined, path: "./4k2:a" }],
  ["/tmp/a:b", { sandbox: undefined, path: "/tmp/a:b" }],
  ["a.txt", { sandbox: undefined, path: "a.txt" }],
] as const)("the path %s is read as %j", ([text, place]) => {
  expect(parsePlace(text)).toEqual(place);
});

describe("finding an id by its beginning", () => {
  const search = { noun: "sandbox", ids: ["abc1", "abd2", "abd"], listCommand: "atoll ls" };

  test("finds the only one that begins so", () => {
    expect(resolvePrefix({ ...search, prefix: "abc" })).toBe("abc1");
  });

  test("finds a whole id that is also the beginning of another", () => {
    expect(resolvePrefix({ ...search, prefix: "abd" })).toBe("abd");
  });

  test("is refused with all matches when there are several", () => {
    expect(() => resolvePrefix({ ...search, prefix: "ab" })).toThrow("abc1, abd2, abd");
  });

  test.for(["x", ""])("is refused with the command that lists them when there is none: %j", (prefix) => {
    expect(() => resolvePrefix({ ...search, prefix })).toThrow(expect.objectContaining({ code: "not_found" }));
  });
});
