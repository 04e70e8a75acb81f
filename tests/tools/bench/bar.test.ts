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
