import type { TestStatus } from "../../models/report.ts";
import { eachLine, TestCollector, type ParsedTests, type Parser } from "../parser.ts";

const statuses: Readonly<Record<string, TestStatus>> = {
  PASSED: "passed",
  FAILED: "failed",
  ERROR: "error",
  SKIPPED: "skipped",
  XFAIL: "xfailed",
  XPASS: "xpassed",
};

/** How an id is made of what follows the status. Data sets have ids of all these forms. */
type IdForm = (rest: string) => string;

const firstWord: IdForm = (rest) => rest.split(/\s/, 1)[0] ?? "";

/** A parameter that is an absolute path differs between machines: only its last part is kept. */
const shortOption: IdForm = (rest) => {
  const id = firstWord(rest);
  const open = id.indexOf("[");
  const close = id.lastIndexOf("]");
  if (open === -1 || close < open) return id;
  const option = id.slice(open + 1, close);
  const isPath = option.startsWith("/") && !option.startsWith("//") && !option.includes("*");
  return `${id.slice(0, open)}[${isPath ? `/${option.slice(option.lastIndexOf("/") + 1)}` : option}]`;
};

/** Parameters may have spaces in them. */
const allWords: IdForm = (rest) => rest.replaceAll(/\s+/g, " ").trim();

const mouseButtons: IdForm = (rest) =>
  firstWord(rest.replaceAll("MouseButton.LEFT", "1").replaceAll("MouseButton.RIGHT", "3"));

/** Cuts ` - AssertionError: …` off, which stands behind the parameters if there are any. */
function withoutMessage(rest: string): string {
  const bracket = rest.indexOf("[");
  const dash = rest.indexOf(" - ");
  if (dash === -1) return rest;
  if (bracket === -1 || dash < bracket) return rest.slice(0, dash);
  const close = rest.indexOf("] - ", bracket);
  return close === -1 ? rest : rest.slice(0, close + 1);
}

/** `=== 1 failed, 3 passed in 0.12s ===`, or without the bars with `-q`. */
const summary = /^(?:=+ )?(?:no tests ran|(?:\d+ [a-z]+,? ?){1,9}) ?in \d/;

function parsePytest(text: string, form: IdForm): ParsedTests {
  const collector = new TestCollector();
  const progress: [string, TestStatus][] = [];
  let suiteRan = false;
  eachLine(text, (line) => {
    const space = line.indexOf(" ");
    const status = space === -1 ? undefined : statuses[line.slice(0, space)];
    if (status !== undefined) {
      const rest = line.slice(space + 1).trimEnd();
      // A captured line of a log: `ERROR    root:test_x.py:14 message`.
      if (rest.startsWith(" ")) return;
      // `SKIPPED [2] tests/test_x.py:12: reason` counts tests and names none.
      if (status === "skipped" && /^\[\d+\]/.test(rest)) return;
      const id = form(status === "failed" || status === "xfailed" || status === "error" ? withoutMessage(rest) : rest);
      // What data sets call missing, as XPASS is to them, must not hide a line that they know.
      if (status === "xpassed") collector.setNew(id, status);
      else collector.set(id, status);
      return;
    }
    const shown = readProgress(line);
    if (shown !== undefined) progress.push([form(shown.id), shown.status]);
    suiteRan ||= summary.test(line);
  });
  for (const [id, status] of progress) collector.setNew(id, status);
  return { tests: collector.tests, suiteRan: suiteRan || collector.tests.size > 0 };
}

/** A line of `pytest -v`: `tests/test_x.py::test_a PASSED [ 50%]`, or with xdist `[gw0] [ 50%] PASSED tests/…`. */
function readProgress(line: string): { id: string; status: TestStatus } | undefined {
  if (!line.includes("::")) return undefined;
  const parallel = /^\[gw\d+\] \[ *\d+%\] ([A-Z]+) (\S.*)$/.exec(line);
  if (parallel !== null) {
    const status = statuses[parallel[1] ?? ""];
    return status === undefined ? undefined : { id: parallel[2] ?? "", status };
  }
  let rest = line.trimEnd();
  const percent = rest.lastIndexOf("[");
  if (percent > 0 && /^\[ *\d{1,3}%\]$/.test(rest.slice(percent))) rest = rest.slice(0, percent).trimEnd();
  const reason = rest.lastIndexOf(" (");
  if (reason > 0 && rest.endsWith(")")) rest = rest.slice(0, reason);
  const space = rest.lastIndexOf(" ");
  const status = space < 1 ? undefined : statuses[rest.slice(space + 1)];
  return status === undefined ? undefined : { id: rest.slice(0, space), status };
}

const variant = (id: string, form: IdForm): Parser => ({
  id,
  version: 1,
  parse: ({ text }) => parsePytest(text, form),
});

/** Reads the text of `pytest -rA`, and of `pytest -v` where a test has no line in the summary. */
export const pytestParsers: readonly Parser[] = [
  variant("pytest", allWords),
  variant("pytest-cut", firstWord),
  variant("pytest-options", shortOption),
  variant("matplotlib", mouseButtons),
];
