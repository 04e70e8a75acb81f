import { eachLine, indentOf, TestCollector, withoutDuration, type ParsedTests, type Parser } from "../parser.ts";
import { parseTap } from "../tap.ts";

/** Reads the reporter `spec` of node:test. A result of a suite comes after those of its tests. */
function parseSpec(text: string): ParsedTests {
  const collector = new TestCollector();
  let suites: { indent: number; title: string }[] = [];
  let suiteRan = false;
  let repeated = false;
  eachLine(text, (line) => {
    const content = line.trim();
    const indent = indentOf(line);
    suiteRan ||= /^ℹ tests [1-9]/.test(content);
    // The failures are printed once more at the end, outside of their suites.
    repeated ||= content.startsWith("✖ failing tests:");
    const match = repeated ? null : /^([✔✖﹣▶]) (\S.*)$/u.exec(content);
    if (match === null) return;
    const [, mark, rest = ""] = match;
    const directive = / # (SKIP|TODO)\b.*$/.exec(rest);
    const title = withoutDuration(directive === null ? rest : rest.slice(0, directive.index));
    suites = suites.filter((suite) => suite.indent < indent || (suite.indent === indent && suite.title === title));
    if (mark === "▶") {
      if (suites.at(-1)?.indent !== indent) suites.push({ indent, title });
      return;
    }
    const around = suites.filter((suite) => suite.indent < indent).map((suite) => suite.title);
    const id = [...around, title].join(" > ");
    if (mark === "﹣" || directive?.[1] === "SKIP") collector.set(id, "skipped");
    else if (directive?.[1] === "TODO") collector.set(id, mark === "✔" ? "xpassed" : "xfailed");
    else collector.set(id, mark === "✔" ? "passed" : "failed");
  });
  return { tests: collector.tests, suiteRan };
}

/** Reads node:test: TAP, or the reporter `spec`. */
export const nodeTestParser: Parser = {
  id: "node-test",
  version: 1,
  parse: ({ text, results }) => {
    const source = results ?? text;
    return /^TAP version \d/m.test(source) ? parseTap(source) : parseSpec(source);
  },
};
