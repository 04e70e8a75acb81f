import { describe, expect, test } from "vitest";
import type { ParserId } from "../../src/models/task.ts";
import { parserFor, parserOfDataSet } from "../../src/parsers/parsers.ts";

const parse = (id: ParserId, text: string, more: { stdout?: string; results?: string } = {}) => {
  const { tests, suiteRan } = parserFor(id).parse({ text, ...more });
  return { tests: Object.fromEntries(tests), suiteRan };
};

describe("mocha", () => {
  const results = {
    "at the root": "passed",
    "outer after inner": "passed",
    "outer inner fails here": "failed",
    "outer inner is skipped": "skipped",
    "outer inner slow one": "passed",
    "second adds": "passed",
  };

  const spec = `

  ✔ at the root
  outer
    ✔ after inner
    inner
      1) fails here
      - is skipped
      ✔ slow one (81ms)

  second
    ✓ adds


  4 passing (84ms)
  1 pending
  1 failing

  1) outer
       inner
         fails here:
`;
  const tap = `ok 1 at the root
ok 2 outer after inner
not ok 4 outer inner fails here
  AssertionError [ERR_ASSERTION]: 1 == 2
ok 5 outer inner is skipped # SKIP -
ok 6 outer inner slow one
ok 7 second adds
# tests 6
1..6
`;
  const titles = (status: string) =>
    Object.entries(results)
      .filter((row) => row[1] === status)
      .map(([fullTitle]) => ({ title: "", fullTitle }));
  const report = {
    stats: { suites: 3, tests: 6, passes: 4 },
    tests: [],
    pending: titles("skipped"),
    failures: titles("failed"),
    passes: titles("passed"),
  };
  const json = `{ "not": "a report" }\n${JSON.stringify(report, null, 2)}\n`;

  test.for([
    ["spec", spec],
    ["tap", tap],
    ["json", `> npm test\n\n${json}npm ERR!\n`],
  ])("the reporter %s", ([, text]) => {
    expect(parse("mocha", text as string)).toEqual({ tests: results, suiteRan: true });
  });

  test("JSON that a warning on stderr has torn apart is read from stdout", () => {
    const torn = json.replace("suites", "su\n(node:1) Warning: x\nites");
    expect(parse("mocha", torn).tests).toEqual({});
    expect(parse("mocha", torn, { stdout: json })).toEqual({ tests: results, suiteRan: true });
  });
});

describe("jest", () => {
  test("the text of --verbose, with and without a duration", () => {
    const text =
      "  outer\n    ✓ adds two (2 ms)\n    ✓ adds\n    ✕ fails\n    ○ skipped later\n\nTests:  1 failed, 3 total\n";
    expect(parse("jest", text)).toEqual({
      suiteRan: true,
      tests: { "adds two": "passed", adds: "passed", fails: "failed", later: "skipped" },
    });
  });

  test("JSON, and the lines that jq makes of it", () => {
    const report = {
      numTotalTests: 2,
      testResults: [
        { name: "/t/broken.js", status: "failed", assertionResults: [] },
        {
          name: "/t/a.js",
          status: "failed",
          assertionResults: [
            { ancestorTitles: ["outer"], title: "adds", status: "passed" },
            { ancestorTitles: [], title: "root", status: "pending" },
          ],
        },
      ],
    };
    const tests = { "/t/broken.js": "error", "outer > adds": "passed", root: "skipped" };
    expect(parse("jest", "", { results: JSON.stringify(report) })).toEqual({ tests, suiteRan: true });
    expect(parse("jest", "[PASSED] outer > adds\n[FAILED] outer > fails\n[PENDING] root\n").tests).toEqual({
      "outer > adds": "passed",
      "outer > fails": "failed",
      root: "skipped",
    });
  });

  test("one result per file where no tests are named, and where a data set has files", () => {
    const text = "PASS src/a.test.js (5.2 s)\nFAIL src/b.test.js\n  ● outer › fails\n    ✓ adds\n";
    expect(parse("jest-files", text).tests).toEqual({ "src/a.test.js": "passed", "src/b.test.js": "failed" });
    expect(parse("jest", text.replace("    ✓ adds\n", "")).tests).toEqual(parse("jest-files", text).tests);
  });
});

test("vitest: ids begin with the file, and a number at the end goes, as the data sets have it", () => {
  const text = [
    " \u001B[32m✓\u001B[39m v/a.test.mjs\u001B[2m > \u001B[22mouter\u001B[2m > \u001B[22madds 1\u001B[2mms\u001B[22m",
    " × v/a.test.mjs > outer > fails 3ms",
    " ↓ v/a.test.mjs > outer > is skipped [skipped]",
    " ✓ v/a.test.mjs > case 3",
    "   → expected 1 to be 2",
    "      Tests  1 failed | 2 passed (4)",
  ].join("\n");
  expect(parse("vitest", text)).toEqual({
    suiteRan: true,
    tests: {
      "v/a.test.mjs > outer > adds": "passed",
      "v/a.test.mjs > outer > fails": "failed",
      "v/a.test.mjs > outer > is skipped": "skipped",
      "v/a.test.mjs > case": "passed",
    },
  });
});

describe("jasmine", () => {
  test("failures are named, and a clean run is a run", () => {
    const text = "Started\n.F\n\nFailures:\n1) New should fail\n  Message:\n    1) no\n\n2 specs, 1 failure\n";
    expect(parse("jasmine", text)).toEqual({ suiteRan: true, tests: { "New should fail": "failed" } });
    expect(parse("jasmine", "Started\n\n658 specs, 0 failures\n")).toEqual({ suiteRan: true, tests: {} });
  });

  test("a run without a test is none", () => {
    expect(parse("jasmine", "0 specs, 0 failures\n").suiteRan).toBe(false);
    expect(parse("jasmine", "Cannot find module 'jasmine'\n").suiteRan).toBe(false);
  });
});

describe("karma", () => {
  test("suites are nested as in the data sets", () => {
    const text = `START:
Starting browser Chrome
  Suite A
    ✔ one
    Suite B
      ✖ two
  Suite C
    ✔ three
SUMMARY:
✔ 2 tests completed
`;
    expect(parse("karma", text)).toEqual({
      suiteRan: true,
      tests: {
        "Suite A > one": "passed",
        "Suite A > Suite B > two": "failed",
        "Suite A > three": "passed",
      },
    });
  });

  test("a browser that is lost before the first test is no run", () => {
    expect(parse("karma", "Chrome 120: Executed 0 of 0 DISCONNECTED\n").suiteRan).toBe(false);
    expect(parse("karma", "Chrome 120: Executed 294 of 1293 SUCCESS\n").suiteRan).toBe(true);
  });
});

test("every parser that a data set of ours names is there, by name or by repository", () => {
  const instance = (logParser: string | undefined, repo: string) => parserOfDataSet({ logParser, repo });
  expect(instance("parse_log_sphinx", "sphinx-doc/sphinx")).toBe("pytest");
  expect(instance(undefined, "sphinx-doc/sphinx")).toBe("pytest");
  expect(instance("parse_log_pytest", "owner/name")).toBe("pytest-cut");
  expect(instance("parse_log_marked", "")).toBe("jasmine");
  expect(instance("parse_log_cypress", "cypress-io/cypress")).toBeUndefined();
  expect(instance(undefined, "owner/name")).toBeUndefined();
});
