import { expect, test } from "vitest";
import { describeBar, judge, type Bar } from "../../bench/bar.ts";
import { summarize } from "../../bench/statistics.ts";

const ours = summarize([30], "lower");
const rival = summarize([20], "lower");

test.for([
  [{ of: "ratio", is: "at most", value: 1.5 }, true, "ratio ≤ 1.5"],
  [{ of: "ratio", is: "at most", value: 1.49 }, false, "ratio ≤ 1.49"],
  [{ of: "ratio", is: "at least", value: 1.5 }, true, "ratio ≥ 1.5"],
  [{ of: "ratio", is: "at least", value: 1.51 }, false, "ratio ≥ 1.51"],
  [{ of: "ours", is: "at most", value: 30 }, true, "ours ≤ 30 ms"],
  [{ of: "ours", is: "at most", value: 29 }, false, "ours ≤ 29 ms"],
] satisfies [Bar, boolean, string][])("30 against 20 meets %j: %s", ([bar, isMet, text]) => {
  expect(judge(bar, ours, rival)).toEqual({ ratio: 1.5, isMet });
  expect(describeBar(bar, "ms")).toBe(text);
});

test("a bar of checks is always met, with and without a rival", () => {
  const bar: Bar = { of: "checks", text: "0 lost" };
  expect(judge(bar, ours, null)).toEqual({ ratio: null, isMet: true });
  expect(judge(bar, ours, rival)).toEqual({ ratio: 1.5, isMet: true });
  expect(describeBar(bar, "ms")).toBe("0 lost");
});

test("a limit of our own time needs no rival, and a limit of the ratio does", () => {
  expect(judge({ of: "ours", is: "at most", value: 29 }, ours, null)).toEqual({ ratio: null, isMet: false });
  expect(() => judge({ of: "ratio", is: "at most", value: 1 }, ours, null)).toThrow("without a rival");
});
