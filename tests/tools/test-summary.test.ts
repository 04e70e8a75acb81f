import { expect, test } from "vitest";
import { countLine, isSuccess, skippedLines } from "../../tools/test-summary.mjs";

const summary = { passed: 3, failed: 0, skipped: [{ name: "a > b", reason: "no docker here" }] };

test("the count line contains the counts as text", () => {
  expect(countLine(summary)).toBe("3 passed, 0 failed, 1 skipped");
});

test("a skipped test is named with its reason", () => {
  expect(skippedLines(summary)).toEqual(["did not run: a > b (no docker here)"]);
});

test.for([
  ["every test that ran passed", 0, summary, true],
  ["one failed", 1, { ...summary, failed: 1 }, false],
  ["the runner failed after the last test", 1, summary, false],
  ["the runner left no result", 0, undefined, false],
  ["nothing ran", 0, { ...summary, passed: 0 }, false],
] as const)("when %s", ([, exitCode, result, expected]) => {
  expect(isSuccess(exitCode, result && { ...result, skipped: [...result.skipped] })).toBe(expected);
});
