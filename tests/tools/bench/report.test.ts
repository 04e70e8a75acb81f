import { expect, test } from "vitest";
import { formatNumber, formatReport, layOut, type Report, type Result } from "../../bench/report.ts";
import { summarize } from "../../bench/statistics.ts";

const result: Result = {
  name: "engine.exec",
  unit: "ms",
  better: "lower",
  ours: summarize([10, 11, 12], "lower"),
  rival: summarize([20, 40, 60], "lower"),
  ratio: 11 / 40,
  bar: "ratio ≤ 0.35",
  ok: true,
  n: 3,
  phases: null,
  checks: [],
  notes: [],
  error: null,
  load: { average: [0.1, 0.2, 0.3], busyShare: 0.04, isQuiet: true },
};

const report = (...results: Result[]): Report => ({
  machine: {
    cpu: "Some CPU",
    cores: 2,
    memoryMib: 1024,
    kernel: "6.1",
    arch: "x64",
    node: "v20.19.0",
    runsc: "20240729",
  },
  commit: "abc",
  startedAt: "2026-01-01T00:00:00.000Z",
  isQuick: false,
  results,
});

test("a row has both sides, the ratio and the verdict", () => {
  const row = formatReport(report(result))
    .split("\n")
    .find((line) => line.startsWith("engine.exec"));
  expect(row?.split(/ {2,}/)).toEqual([
    "engine.exec",
    ..."3,11.0,12.0,10.0,40.0,60.0,20.0,ms,0.28,ratio ≤ 0.35,ok,4 %".split(","),
  ]);
});

test("a missed bar, an unmet check and a busy machine are named", () => {
  const text = formatReport(
    report(result, {
      ...result,
      name: "engine.kill",
      ok: false,
      checks: [{ text: "left behind: 1 mounts", isMet: false }],
      load: { ...result.load, isQuiet: false },
    }),
  );
  expect(text).toContain("engine.kill: MISSED: left behind: 1 mounts");
  expect(text).toContain("engine.kill: other programs kept the machine busy");
  expect(text).toContain("Missed: engine.kill (1 of 2)");
});

test("a benchmark that failed has a row and a reason", () => {
  const text = formatReport(report({ ...result, ours: null, rival: null, ratio: null, ok: false, error: "no guest" }));
  expect(text).toContain("engine.exec: ERROR no guest");
  expect(text).toMatch(/^engine\.exec +3 +- +-/m);
});

test("the parts of a time are printed below the table", () => {
  const phases = { freeze: summarize([4, 5], "lower"), save: summarize([6, 7], "lower") };
  expect(formatReport(report({ ...result, phases }))).toContain(
    "engine.exec: p50 of its phases: freeze 4.00, save 6.00",
  );
});

test("text is aligned left and numbers right", () => {
  expect(
    layOut([
      ["a", "1"],
      ["bbb", "100"],
    ]),
  ).toEqual(["a      1", "bbb  100"]);
});

test.for([
  [1234.5, "1235"],
  [123.4, "123"],
  [12.34, "12.3"],
  [1.234, "1.23"],
] as const)("%s is written as %s", ([value, text]) => {
  expect(formatNumber(value)).toBe(text);
});
