import { z } from "zod";
import type { TestStatus } from "../../models/report.ts";
import { TestCollector, type ParsedTests, type ParserInput } from "../parser.ts";

const MochaTest = z.object({ fullTitle: z.string() });
const MochaReport = z.object({
  stats: z.object({ tests: z.number() }),
  passes: z.array(MochaTest),
  failures: z.array(MochaTest),
  pending: z.array(MochaTest).default([]),
});

const JestReport = z.object({
  numTotalTests: z.number(),
  testResults: z.array(
    z.object({
      name: z.string().default(""),
      status: z.string().default("passed"),
      assertionResults: z.array(
        z.object({ ancestorTitles: z.array(z.string()).default([]), title: z.string(), status: z.string() }),
      ),
    }),
  ),
});

const jestStatuses: Readonly<Record<string, TestStatus>> = {
  passed: "passed",
  failed: "failed",
  pending: "skipped",
  skipped: "skipped",
  disabled: "skipped",
  todo: "skipped",
};

function addMocha(report: z.infer<typeof MochaReport>, collector: TestCollector): void {
  for (const { fullTitle } of report.pending) collector.set(fullTitle, "skipped");
  for (const { fullTitle } of report.failures) collector.set(fullTitle, "failed");
  for (const { fullTitle } of report.passes) collector.set(fullTitle, "passed");
}

function addJest(report: z.infer<typeof JestReport>, collector: TestCollector): void {
  for (const file of report.testResults) {
    // A file that cannot be loaded has no tests, and is a failure all the same.
    if (file.status === "failed" && file.assertionResults.length === 0) collector.set(file.name, "error");
    for (const { ancestorTitles, title, status } of file.assertionResults) {
      collector.set([...ancestorTitles, title].join(" > "), jestStatuses[status] ?? "error");
    }
  }
}

/** Adds a JSON report of mocha, jest or vitest; `false` when the value is none. */
function addJsonReport(value: unknown, collector: TestCollector): boolean {
  const mocha = MochaReport.safeParse(value);
  if (mocha.success) {
    addMocha(mocha.data, collector);
    return true;
  }
  const jest = JestReport.safeParse(value);
  if (jest.success) addJest(jest.data, collector);
  return jest.success;
}

/** Where a JSON value that begins at `start` ends, or -1. */
function endOfJson(text: string, start: number): number {
  let depth = 0;
  let quoted = false;
  for (let index = start; index < text.length; index++) {
    const char = text[index];
    if (quoted) {
      if (char === "\\") index++;
      else if (char === '"') quoted = false;
    } else if (char === '"') quoted = true;
    else if (char === "{" || char === "[") depth++;
    else if ((char === "}" || char === "]") && --depth === 0) return index + 1;
  }
  return -1;
}

/** Objects that are begun at the start of a line and never end cost a whole pass each. */
const maxPasses = 4;

/** The JSON reports in an output: objects that begin at the start of a line. */
export function findJsonReports({ results, stdout, text }: ParserInput): ParsedTests {
  const collector = new TestCollector();
  let found = false;
  for (const source of [results, stdout, text]) {
    if (source === undefined || found) continue;
    let unended = 0;
    let next = 0;
    for (const { index } of source.matchAll(/^\{/gm)) {
      if (index < next) continue;
      const end = endOfJson(source, index);
      if (end === -1) {
        if (++unended === maxPasses) break;
        continue;
      }
      next = end;
      try {
        found = addJsonReport(JSON.parse(source.slice(index, end)), collector) || found;
      } catch {
        // Text of a program that begins with a brace.
      }
    }
  }
  return { tests: collector.tests, suiteRan: found };
}
