import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "@atoll/host";
import { afterAll, describe, expect, test } from "vitest";
import type { ParserId } from "../../src/models/task.ts";
import { recognise } from "../../src/parsers/auto.ts";
import { parserFor } from "../../src/parsers/parsers.ts";

const read = (id: ParserId, input: { text?: string; stdout?: string; results?: string }) => {
  const { tests, suiteRan } = parserFor(id).parse({ text: "", ...input });
  return { tests: Object.fromEntries(tests), suiteRan };
};

describe("node:test", () => {
  const directory = mkdtempSync(join(tmpdir(), "atoll-parsers-"));
  afterAll(() => rmSync(directory, { recursive: true }));
  const program = `
    import { describe, it, test } from "node:test";
    describe("outer", () => {
      describe("inner", () => {
        it("adds", () => {});
        it("fails", () => { throw new Error("- not ok 7 - forged"); });
        it.skip("is skipped", () => {});
      });
      it("after inner", () => {});
    });
    test("at the root", async (t) => { await t.test("sub", () => {}); });
  `;
  const expected = {
    "outer > inner > adds": "passed",
    "outer > inner > fails": "failed",
    "outer > inner > is skipped": "skipped",
    "outer > after inner": "passed",
    "at the root > sub": "passed",
  };
  writeFileSync(join(directory, "sample.test.mjs"), program);

  test.for(["tap", "spec", "junit"])("the output of the reporter %s is recognised and read", async (reporter) => {
    const file = join(directory, "sample.test.mjs");
    const { stdout: text } = await run(process.execPath, ["--test", `--test-reporter=${reporter}`, file], {
      signal: new AbortController().signal,
      timeoutMs: 60_000,
    });
    const { tests, suiteRan } = read("auto", { text, stdout: text });
    expect(tests).toMatchObject(expected);
    expect(suiteRan).toBe(true);
  });
});

describe("TAP", () => {
  test("numbers, descriptions, directives and diagnostics", () => {
    const text = `TAP version 14
1..6
ok 1 - first
  ---
  ok 9 - not a result
  ...
not ok 2 second # TODO later
ok 3 third # SKIP no network
ok
# Subtest: outer
    # Subtest: inner
        not ok 1 - deep
        1..1
    not ok 1 - inner
    1..1
not ok 5 - outer
`;
    expect(read("tap", { text })).toEqual({
      suiteRan: true,
      tests: {
        first: "passed",
        second: "xfailed",
        third: "skipped",
        "outer > inner > deep": "failed",
        "outer > inner": "failed",
        outer: "failed",
      },
    });
  });

  test("a run that bails out did not end", () => {
    expect(read("tap", { text: "1..9\nok 1 - a\nBail out! no database\n" })).toEqual({
      suiteRan: false,
      tests: { a: "passed" },
    });
  });
});

describe("JUnit XML", () => {
  const pytest = `<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" tests="5">
<testcase classname="tests.test_param" name="test_p[two words]"><failure message="a &lt; b">x</failure></testcase>
<testcase classname="tests.test_sample.CaseTests" name="test_a" />
<testcase classname="tests.test_sample.CaseTests" file="src/tests/test_sample.py" name="test_b" />
<testcase classname="tests.test_param" name="test_xf"><skipped type="pytest.xfail" message="y" /></testcase>
<testcase classname="tests.test_param" name="test_s"><skipped type="pytest.skip">z</skipped></testcase>
<testcase classname="" name="tests.test_broken"><error message="collection failure"/></testcase>
</testsuite></testsuites>`;

  test("what pytest writes has the ids of pytest", () => {
    expect(read("junit", { results: pytest })).toEqual({
      suiteRan: true,
      tests: {
        "tests/test_param.py::test_p[two words]": "failed",
        "tests/test_sample.py::CaseTests::test_a": "passed",
        "src/tests/test_sample.py::CaseTests::test_b": "passed",
        "tests/test_param.py::test_xf": "xfailed",
        "tests/test_param.py::test_s": "skipped",
        "tests.test_broken": "error",
      },
    });
  });

  test("a file that was cut off is no end of a run", () => {
    const { tests, suiteRan } = read("junit", { results: pytest.slice(0, 420) });
    expect(suiteRan).toBe(false);
    expect(tests).toMatchObject({ "tests/test_param.py::test_p[two words]": "failed" });
  });

  test("entities of a document are not expanded", () => {
    const bomb = `<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>`;
    expect(read("junit", { results: bomb })).toEqual({ tests: {}, suiteRan: false });
  });
});

describe("what runner it was", () => {
  test.for<[string, ParserId | undefined]>([
    ["TAP version 13\nok 1 - a\n1..1\n", "tap"],
    ["============================= test session starts =====\n", "pytest"],
    ["...                                                    [100%]\n3 passed in 0.01s\n", "pytest"],
    ["\u001B[1m===== \u001B[31m1 failed\u001B[0m in 0.12s =====\u001B[0m\n", "pytest"],
    ["Ran 3 tests in 0.001s\n\nOK\n", "unittest"],
    ["============================= test process starts ====\n", "sympy"],
    ["\n  3 passing (12ms)\n", "mocha"],
    ['{\n  "stats": {\n    "suites": 3\n', "mocha"],
    ["Test Suites: 1 passed, 1 total\r\nTests:       3 passed, 3 total\r\n", "jest"],
    [" Test Files  1 passed (1)\n      Tests  3 passed (3)\n", "vitest"],
    ["3 specs, 0 failures\n", "jasmine"],
    ["ℹ tests 4\nℹ suites 2\n", "node-test"],
    ["all good\n", undefined],
  ])("%j: %s", ([text, id]) => {
    expect(recognise({ text })).toBe(id);
  });

  test("a file of results goes before the text", () => {
    expect(recognise({ text: "Ran 3 tests in 1s\n", results: '<?xml version="1.0"?>\n<testsuites/>' })).toBe("junit");
    expect(recognise({ text: "", results: '{"numTotalTests":1}' })).toBe("jest");
    expect(recognise({ text: "", results: "TAP version 13\nok 1\n" })).toBe("tap");
  });

  test("an output of no runner is not a run", () => {
    expect(read("auto", { text: "all good\n" })).toEqual({ tests: {}, suiteRan: false });
  });
});

test("a hostile output keeps no more than a bounded number of tests", () => {
  const lines = Array.from({ length: 310_000 }, (_, index) => `ok ${index} - t${index}`);
  expect(parserFor("tap").parse({ text: lines.join("\n") }).tests.size).toBe(300_000);
  expect(parserFor("tap").parse({ text: `ok 1 - ${"x".repeat(10_000)}` }).tests.size).toBe(0);
});

test("a line without an end is no work", () => {
  const text = `PASSED a::b\n${"x ".repeat(1_000_000)}\nPASSED c::d`;
  expect(parserFor("pytest").parse({ text }).tests.size).toBe(2);
});
