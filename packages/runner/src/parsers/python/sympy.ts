import type { TestStatus } from "../../models/report.ts";
import { eachLine, TestCollector, type Parser } from "../parser.ts";

const statuses: Readonly<Record<string, TestStatus>> = {
  ok: "passed",
  F: "failed",
  E: "error",
  f: "xfailed",
  X: "xpassed",
  s: "skipped",
};

/** Reads the text of SymPy's `bin/test -C --verbose`. Its ids are names of functions, without a file. */
export const sympyParser: Parser = {
  id: "sympy",
  version: 2,
  parse({ text }) {
    const collector = new TestCollector();
    let suiteRan = false;
    eachLine(text, (raw) => {
      // Behind the last test of a file is the result of the file.
      const line = raw.trim().replace(/\s+\[(?:OK|FAIL)\]$/, "");
      if (line.startsWith("test_")) {
        const status = / s - /.test(line) ? "skipped" : statuses[line.slice(line.lastIndexOf(" ") + 1)];
        const id = line.split(/\s/, 1)[0] ?? "";
        const hasRun = status === "passed" || status === "failed" || status === "error";
        // Functions of several files share a name; what did not really run must not hide a result of another file.
        // Data sets do not know the result of the last test of a file, so it does not hide one either.
        if (hasRun && line === raw.trim()) collector.set(id, status);
        else if (status !== undefined) collector.setNew(id, status);
      } else if (line.startsWith("___")) {
        // The title of a traceback, `____ sympy/core/tests/test_basic.py:test_immutable ____`, of a line that is cut.
        const title = /^_+ \S+\.py:(test_\S+) _+$/.exec(line);
        if (title !== null) collector.setNew(title[1] ?? "", "failed");
      }
      suiteRan ||= /^=+ tests finished: \d/.test(line);
    });
    return { tests: collector.tests, suiteRan };
  },
};
