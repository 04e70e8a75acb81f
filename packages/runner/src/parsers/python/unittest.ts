import type { TestStatus } from "../../models/report.ts";
import { eachLine, TestCollector, type ParsedTests, type Parser } from "../parser.ts";

/** `test_x (module.Class)`; sub-tests have `[message]` or `(i=1)` behind it. */
const testId = /^\w+ \([\w.<>]+\)/;

const results = [
  [" ... ok", "passed"],
  [" ... OK", "passed"],
  [" ...  OK", "passed"],
  [" ... FAIL", "failed"],
  [" ... ERROR", "error"],
  [" ... expected failure", "xfailed"],
  [" ... unexpected success", "xpassed"],
] as const;

/** A test that prints something between its name and its `ok`. */
const banner = " ... Testing against Django installed in ";

/**
 * Reads the text of `unittest -v` and of Django's runner. `asDataSet` gives every id that a data set may have for a
 * test: depending on the version of Python that made it, that is the first line of a docstring, or the line before it.
 */
function parseUnittest(text: string, asDataSet: boolean): ParsedTests {
  const collector = new TestCollector();
  let suiteRan = false;
  let previous = "";
  /** Ids of the last test that was begun. */
  let begun: readonly string[] = [];
  let bannerOf: readonly string[] = [];
  let silenced = false;

  const record = (ids: readonly string[], status: TestStatus) => {
    for (const id of ids) collector.set(id, status);
  };
  /** The ids of a test from what stands before its result, and from the line before that. */
  const idsOf = (name: string): string[] => {
    const documented = testId.exec(previous)?.[0] === previous && !testId.test(name) ? previous : undefined;
    // A sub-test that failed leaves the name of its test on the line, without a result.
    const last = name.slice(name.lastIndexOf(" ... ") + 1).replace(/^\.\.\. /, "");
    const id = testId.exec(last)?.[0] ?? last;
    if (asDataSet) return [...new Set([name, id, ...(documented === undefined ? [] : [documented])])];
    return [documented ?? id];
  };

  eachLine(text, (raw) => {
    const line = raw.trim();
    const dots = line.indexOf(" ... ");
    if (asDataSet && line.includes("--version is equivalent to version")) {
      record(["--version is equivalent to version"], "passed");
    }
    if (dots > 0) begun = idsOf(line.slice(0, dots));
    if (dots > 0 && line.startsWith(banner, dots)) bannerOf = begun;

    const ended = results.find(([suffix]) => line.endsWith(suffix));
    if (ended !== undefined) {
      // A migration prints its own line, without a break, before the name of the test.
      const name = line.slice(0, -ended[0].length).replace(/^Applying sites\.0002_alter_domain_unique\.\.\./, "");
      record(idsOf(name), ended[1]);
    } else if (line.includes(" ... skipped")) {
      record(idsOf(line.slice(0, line.indexOf(" ... skipped"))), "skipped");
    } else if (line.startsWith("FAIL: ") || line.startsWith("ERROR: ")) {
      const status = line.startsWith("FAIL: ") ? "failed" : "error";
      const name = line.slice(line.indexOf(" ") + 1);
      if (asDataSet) record([name.split(/\s/, 1)[0] ?? ""], status);
      record([testId.exec(name)?.[0] ?? name], status);
    } else if (line.startsWith("ok")) {
      record(begun, "passed");
      if (silenced && line === "ok") record(bannerOf, "passed");
    }
    silenced = line.endsWith(" silenced).");
    previous = line;
    suiteRan ||= /^Ran \d+ tests? in /.test(line);
  });
  return { tests: collector.tests, suiteRan };
}

export const unittestParsers: readonly Parser[] = [
  { id: "unittest", version: 1, parse: ({ text }) => parseUnittest(text, false) },
  { id: "django", version: 1, parse: ({ text }) => parseUnittest(text, true) },
];
