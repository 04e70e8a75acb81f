import type { TestStatus } from "../models/report.ts";
import { eachLine, indentOf, TestCollector, type ParsedTests, type Parser } from "./parser.ts";

function statusOf(ok: boolean, directive: string | undefined): TestStatus {
  if (directive === "skip") return "skipped";
  if (directive === "todo") return ok ? "xpassed" : "xfailed";
  return ok ? "passed" : "failed";
}

/**
 * Reads TAP 13 and 14. A result of a subtest is named after the tests around it, `outer > inner`. A description of a
 * data set may end with its directive; `findStatus` knows that.
 */
export function parseTap(text: string): ParsedTests {
  const collector = new TestCollector();
  /** Names of open subtests, with the indentation of the line that names them. */
  let open: { indent: number; name: string }[] = [];
  let planned = false;
  let bailedOut = false;
  let skipBlock = -1;
  eachLine(text, (line) => {
    const indent = indentOf(line);
    const content = line.trim();
    // A YAML block of diagnostics may have anything in it.
    if (skipBlock !== -1) {
      if (indent === skipBlock && content === "...") skipBlock = -1;
      return;
    }
    if (content === "---" && indent > 0) {
      skipBlock = indent;
      return;
    }
    if (content.startsWith("Bail out!")) bailedOut = true;
    planned ||= /^1\.\.[1-9]\d*/.test(content) || /^# tests [1-9]\d*/.test(content);
    const subtest = /^# Subtest: (\S.*)$/.exec(content);
    if (subtest !== null) {
      open = open.filter((level) => level.indent < indent);
      open.push({ indent, name: subtest[1] ?? "" });
      return;
    }
    const result = /^(ok|not ok)(?: (\d+))?(?: (\S.*))?$/.exec(content);
    if (result === null) return;
    const [, outcome, number = "", rest = ""] = result;
    const directive = / ?# ?(skip|todo)\b.*$/i.exec(rest);
    const described = directive === null ? rest : rest.slice(0, directive.index);
    const name = described.replace(/^- /, "").trim() || number;
    open = open.filter((level) => level.indent < indent);
    collector.set(
      [...open.map((level) => level.name), name].join(" > "),
      statusOf(outcome === "ok", directive?.[1]?.toLowerCase()),
    );
  });
  return { tests: collector.tests, suiteRan: planned && !bailedOut };
}

export const tapParser: Parser = {
  id: "tap",
  version: 1,
  parse: ({ text, results }) => parseTap(results ?? text),
};
