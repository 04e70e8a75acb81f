import type { TestStatus } from "../../models/report.ts";
import { eachLine, TestCollector, type Parser } from "../parser.ts";
import { findJsonReports } from "./json-reports.ts";

const marks: Readonly<Record<string, TestStatus>> = { "✓": "passed", "×": "failed", "↓": "skipped" };

/** Reads vitest's JSON, or the text of `--reporter=verbose`, whose ids begin with the file. */
export const vitestParser: Parser = {
  id: "vitest",
  version: 1,
  parse(input) {
    const report = findJsonReports(input);
    if (report.suiteRan) return report;
    const collector = new TestCollector();
    let suiteRan = false;
    eachLine(input.text, (line) => {
      const content = line.trim();
      const status = marks[content[0] ?? ""];
      // The duration, and the number at the end of a name too: data sets were made like that.
      if (status !== undefined && /^\s/.test(content.slice(1))) {
        collector.set(content.slice(2).replace(/ (?:\d+ ?m?s?|\[skipped\])$/, ""), status);
      }
      suiteRan ||= /^Tests\s+\d/.test(content);
    });
    return { tests: collector.tests, suiteRan };
  },
};
