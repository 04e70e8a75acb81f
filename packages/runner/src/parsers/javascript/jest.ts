import type { TestStatus } from "../../models/report.ts";
import { eachLine, TestCollector, withoutDuration, type ParsedTests, type Parser } from "../parser.ts";
import { findJsonReports } from "./json-reports.ts";

const marks: Readonly<Record<string, TestStatus>> = {
  "✓": "passed",
  "✕": "failed",
  "○": "skipped",
  "✎": "skipped",
};

const files: Readonly<Record<string, TestStatus>> = { PASS: "passed", FAIL: "failed" };

function parseText(text: string, perFile: boolean): ParsedTests {
  const collector = new TestCollector();
  const perFileResults = new TestCollector();
  let suiteRan = false;
  eachLine(text, (line) => {
    const content = line.trim();
    const file = files[line.slice(0, 4)];
    if (file !== undefined && /^\s/.test(line.slice(4)))
      perFileResults.set(withoutDuration(line.slice(5).trim()), file);
    const status = marks[content[0] ?? ""];
    if (status !== undefined && content[1] === " ") {
      const name = content.slice(2).trim();
      collector.set(name.replace(/ \(\d+\s?m?s\)$/, "").replace(/^(?:skipped|todo) (?=\S)/, ""), status);
    }
    // One line per test, as `jq` makes it of a JSON report.
    const listed = /^\[(PASSED|FAILED|PENDING|SKIPPED|TODO)\] (\S.*)$/.exec(content);
    if (listed !== null) {
      const word = listed[1];
      collector.set(listed[2] ?? "", word === "PASSED" ? "passed" : word === "FAILED" ? "failed" : "skipped");
    }
    suiteRan ||= /^Tests:\s+(?:\d+ \w+, )*[1-9]\d* total/.test(content);
  });
  // Without `--verbose`, and with more than one file, jest prints one line per file.
  const tests = perFile || collector.tests.size === 0 ? perFileResults.tests : collector.tests;
  return { tests, suiteRan: suiteRan || tests.size > 0 };
}

const jest = (id: string, perFile: boolean): Parser => ({
  id,
  version: 1,
  parse(input) {
    if (!perFile) {
      const report = findJsonReports(input);
      if (report.suiteRan) return report;
    }
    return parseText(input.text, perFile);
  },
});

/** Reads jest's JSON, or its text with `--verbose`; `jest-files` has one result per file. */
export const jestParsers: readonly Parser[] = [jest("jest", false), jest("jest-files", true)];
