import { describe, expect, test } from "vitest";
import { best, percentile, summarize } from "../../bench/statistics.ts";

const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);

describe("percentile", () => {
  test.for([
    [0.5, 50],
    [0.95, 95],
    [0.951, 96],
    [1, 100],
    [0.001, 1],
  ] as const)("%s of 1 to 100 in any order is %s", ([fraction, value]) => {
    expect(percentile(hundred, fraction)).toBe(value);
  });

  test("is always one of the samples", () => {
    expect(percentile([1, 10], 0.5)).toBe(1);
    expect(percentile([7], 0.95)).toBe(7);
  });

  test("sorts numbers as numbers", () => {
    expect(percentile([9, 10, 100], 0.5)).toBe(10);
  });

  test("does not reorder the samples", () => {
    const samples = [3, 1, 2];
    percentile(samples, 0.5);
    expect(samples).toEqual([3, 1, 2]);
  });

  test("of no samples is an error", () => {
    expect(() => percentile([], 0.5)).toThrow("no samples");
  });
});

describe("summarize", () => {
  test("of times has the slow tail at the top", () => {
    expect(summarize(hundred, "lower")).toEqual({ p50: 50, p95: 95, min: 1, max: 100, mean: 50.5 });
  });

  test("of rates has the slow tail at the bottom", () => {
    const summary = summarize(hundred, "higher");
    expect(summary.p95).toBe(6);
    expect(hundred.filter((rate) => rate >= summary.p95)).toHaveLength(95);
  });

  test("the best sample is the shortest time or the highest rate", () => {
    const summary = summarize(hundred, "lower");
    expect(best(summary, "lower")).toBe(1);
    expect(best(summary, "higher")).toBe(100);
  });
});
