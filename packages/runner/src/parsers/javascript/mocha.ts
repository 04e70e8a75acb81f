import { eachLine, indentOf, TestCollector, withoutDuration, type ParsedTests, type Parser } from "../parser.ts";
import { parseTap } from "../tap.ts";
import { findJsonReports } from "./json-reports.ts";

/** Reads the text of the reporter `spec`. Ids are as in the JSON of mocha: the titles of suites and test in a line. */
function parseSpec(text: string): ParsedTests {
  const collector = new TestCollector();
  let suites: { indent: number; title: string }[] = [];
  let ended = false;
  eachLine(text, (line) => {
    const content = line.trim();
    if (ended || content === "") return;
    const indent = indentOf(line);
    if (/^\d+ passing\b/.test(content)) {
      ended = true;
      return;
    }
    const set = (name: string, status: "passed" | "failed" | "skipped") => {
      const around = suites.filter((suite) => suite.indent < indent).map(({ title }) => title);
      collector.set([...around, withoutDuration(name)].join(" "), status);
    };
    const failure = /^\d+\) (\S.*)$/.exec(content);
    if (/^[✓✔] /.test(content)) set(content.slice(2), "passed");
    else if (failure !== null) set(failure[1] ?? "", "failed");
    else if (content.startsWith("- ") && indent > 0) set(content.slice(2), "skipped");
    else if (indent > 0) {
      suites = suites.filter((suite) => suite.indent < indent);
      suites.push({ indent, title: content });
    }
  });
  return { tests: collector.tests, suiteRan: ended };
}

/** Reads mocha's JSON and TAP, or the text of its reporter `spec`. */
export const mochaParser: Parser = {
  id: "mocha",
  version: 1,
  parse(input) {
    const report = findJsonReports(input);
    if (report.suiteRan) return report;
    return /^1\.\.\d/m.test(input.text) ? parseTap(input.text) : parseSpec(input.text);
  },
};

/** Reads the text of Jasmine, which names the tests that failed and no others. */
export const jasmineParser: Parser = {
  id: "jasmine",
  version: 1,
  parse({ text }) {
    const collector = new TestCollector();
    let suiteRan = false;
    eachLine(text, (line) => {
      const failure = /^\d+\) (\S.*)$/.exec(line);
      if (failure !== null) collector.set((failure[1] ?? "").trim(), "failed");
      suiteRan ||= /^[1-9]\d* specs?, \d+ failures?/.test(line);
    });
    return { tests: collector.tests, suiteRan };
  },
};
