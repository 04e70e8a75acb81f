import { eachLine, indentOf, TestCollector, type Parser } from "../parser.ts";

/**
 * Reads the text of karma's mocha reporter. How suites are nested follows SWE-bench, whose ids have it: a line that is
 * less indented ends one suite and begins none.
 */
export const karmaParser: Parser = {
  id: "karma",
  version: 1,
  parse({ text }) {
    const collector = new TestCollector();
    const suites: string[] = [];
    let indent = -1;
    let state: "before" | "tests" | "after" = "before";
    let suiteRan = false;
    eachLine(text, (line) => {
      suiteRan ||= /Executed [1-9]\d* of \d/.test(line) || /^TOTAL: [1-9]/.test(line);
      if (line.startsWith("SUMMARY:")) {
        state = "after";
        suiteRan ||= collector.tests.size > 0;
      } else if (line.includes("Starting browser")) state = "tests";
      if (state !== "tests" || !/^\s/.test(line)) return;
      const content = line.trimStart();
      const mark = content[0];
      if ((mark === "✔" || mark === "✖") && /^\s/.test(content.slice(1))) {
        collector.set([...suites, content.slice(2)].join(" > "), mark === "✔" ? "passed" : "failed");
        return;
      }
      // One of the spaces belongs to the name in the data sets, not to the indentation.
      const depth = indentOf(line) - 1;
      if (depth < 1) return;
      if (depth > indent) suites.push(content);
      else if (depth < indent) suites.pop();
      indent = depth;
    });
    return { tests: collector.tests, suiteRan };
  },
};
