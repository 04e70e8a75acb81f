import { describe, expect, test } from "vitest";
import type { ParserId } from "../../src/models/task.ts";
import { parserFor } from "../../src/parsers/parsers.ts";

const parse = (id: ParserId, text: string) => {
  const { tests, suiteRan } = parserFor(id).parse({ text });
  return { tests: Object.fromEntries(tests), suiteRan };
};

/** The end of what pytest 7.2 prints with `-rA`. */
const summary = `
------------------------------ Captured log call -------------------------------
ERROR    root:test_param.py:14 noise
=========================== short test summary info ============================
PASSED test_param.py::test_p[plain]
PASSED test_param.py::test_p[/abs/path/x]
PASSED test_param.py::test_p[//x/y]
PASSED test_param.py::test_p[x[0]]
SKIPPED [1] test_param.py:8: not here
XFAIL test_param.py::test_xf - because of it
XPASS test_param.py::test_xp
ERROR test_param.py::test_setup_error - RuntimeError: no
FAILED test_param.py::test_p[two words] - AssertionError: assert ('two words'...
FAILED test_param.py::test_p[a - b] - AssertionError: assert ('a - b' != 'two...
==== 2 failed, 5 passed, 1 skipped, 1 xfailed, 1 xpassed, 1 error in 0.02s =====
`;

describe("pytest", () => {
  test("every line of the summary is a result, with the whole id", () => {
    expect(parse("pytest", summary)).toEqual({
      suiteRan: true,
      tests: {
        "test_param.py::test_p[plain]": "passed",
        "test_param.py::test_p[/abs/path/x]": "passed",
        "test_param.py::test_p[//x/y]": "passed",
        "test_param.py::test_p[x[0]]": "passed",
        "test_param.py::test_xf": "xfailed",
        "test_param.py::test_xp": "xpassed",
        "test_param.py::test_setup_error": "error",
        "test_param.py::test_p[two words]": "failed",
        "test_param.py::test_p[a - b]": "failed",
      },
    });
  });

  test("the forms of data sets cut ids at a space and shorten paths", () => {
    expect(Object.keys(parse("pytest-cut", summary).tests)).toContain("test_param.py::test_p[two");
    const shortened = Object.keys(parse("pytest-options", summary).tests);
    expect(shortened).toContain("test_param.py::test_p[/x]");
    expect(shortened).toContain("test_param.py::test_p[//x/y]");
    expect(parse("matplotlib", "PASSED t.py::t[MouseButton.LEFT]").tests).toEqual({ "t.py::t[1]": "passed" });
  });

  test("lines of -v with colours count where the summary has none", () => {
    const text = [
      "test_param.py::test_p[two words] \u001B[31mFAILED\u001B[0m\u001B[31m            [ 18%]\u001B[0m",
      "test_param.py::test_xf \u001B[33mXFAIL\u001B[0m (because of it)\u001B[31m       [ 63%]\u001B[0m",
      "[gw1] [ 50%] PASSED tests/test_a.py::test_b ",
      "test_param.py::test_s PASSED",
      "SKIPPED test_param.py::test_s",
    ].join("\n");
    expect(parse("pytest", text).tests).toEqual({
      "test_param.py::test_s": "skipped",
      "test_param.py::test_p[two words]": "failed",
      "test_param.py::test_xf": "xfailed",
      "tests/test_a.py::test_b": "passed",
    });
  });

  test("a number of skipped tests is no test, and a wrapped percentage is one, as the data sets have it", () => {
    expect(parse("pytest-cut", "SKIPPED [23] tests/test_b.py:4: reason\nPASSED [100%]").tests).toEqual({
      "[100%]": "passed",
    });
  });

  test("a status without an id is nothing", () => {
    expect(parse("pytest", "PASSED\nFAILED \n PASSED")).toEqual({ tests: {}, suiteRan: false });
  });

  test.for([
    ["==== 3 passed, 1 warning in 0.12s ====", true],
    ["==== 3 passed in 64.12 seconds ====", true],
    ["3 passed in 0.01s", true],
    ["==== no tests ran in 0.01s ====", true],
    ["collected 3 items", false],
    ["I wrote 3 tests in 10 minutes", false],
  ] as const)("the end of a run in %j: %s", ([text, ran]) => {
    expect(parse("pytest", text).suiteRan).toBe(ran);
  });
});

/** What `python3.11 -m unittest -v` prints. */
const python311 = `test_doc (sample.CaseTests.test_doc)
The first line of a docstring. ... ok
test_error (sample.CaseTests.test_error) ... ERROR
test_print (sample.CaseTests.test_print) ... some output
ok
test_skip (sample.CaseTests.test_skip) ... skipped 'not here'
test_sub (sample.CaseTests.test_sub) ...
  test_sub (sample.CaseTests.test_sub) (i=1) ... FAIL
test_xfail (sample.CaseTests.test_xfail) ... expected failure
test_xpass (sample.CaseTests.test_xpass) ... unexpected success

======================================================================
ERROR: test_error (sample.CaseTests.test_error)
----------------------------------------------------------------------
ValueError: x

----------------------------------------------------------------------
Ran 7 tests in 0.001s

FAILED (failures=1, errors=1, skipped=1, expected failures=1, unexpected successes=1)
`;

/** What `python3.8 -m unittest -v` prints: a sub-test that failed leaves no result. */
const python38 = `test_fail (sample.CaseTests) ... FAIL
test_sub (sample.CaseTests) ... test_xfail (sample.CaseTests) ... expected failure

======================================================================
FAIL: test_sub (sample.CaseTests) (i=1)
----------------------------------------------------------------------
Ran 3 tests in 0.001s
`;

describe("unittest", () => {
  test("a test has one result, whatever it prints and documents", () => {
    expect(parse("unittest", python311)).toEqual({
      suiteRan: true,
      tests: {
        "test_doc (sample.CaseTests.test_doc)": "passed",
        "test_error (sample.CaseTests.test_error)": "error",
        "test_print (sample.CaseTests.test_print)": "passed",
        "test_skip (sample.CaseTests.test_skip)": "skipped",
        "test_sub (sample.CaseTests.test_sub)": "failed",
        "test_xfail (sample.CaseTests.test_xfail)": "xfailed",
        "test_xpass (sample.CaseTests.test_xpass)": "xpassed",
      },
    });
    expect(parse("unittest", python38).tests).toEqual({
      "test_fail (sample.CaseTests)": "failed",
      "test_xfail (sample.CaseTests)": "xfailed",
      "test_sub (sample.CaseTests)": "failed",
    });
  });

  test("for a data set the docstring is an id too", () => {
    const { tests } = parse("django", python311);
    expect(tests["The first line of a docstring."]).toBe("passed");
    expect(tests["test_doc (sample.CaseTests.test_doc)"]).toBe("passed");
  });

  test("an ok that other output separates from its test is found", () => {
    const text = [
      "test_commands (app.tests.CommandTests) ... Testing against Django installed in '/testbed/django'",
      "test_other (app.tests.CommandTests) ... ok",
      "System check identified no issues (0 silenced).",
      "ok",
      "test_page (app.tests.ViewTests) ... Internal Server Error: /page/",
      "ok",
      "Applying sites.0002_alter_domain_unique...test_no_migrations (app.tests.MigrationTests) ... ok",
    ].join("\n");
    expect(parse("django", text).tests).toMatchObject({
      "test_commands (app.tests.CommandTests)": "passed",
      "test_page (app.tests.ViewTests)": "passed",
      "test_no_migrations (app.tests.MigrationTests)": "passed",
    });
  });
});

test("sympy: functions, their exceptions, and the end of a run", () => {
  const text = `============================= test process starts ==============================
sympy/core/tests/test_basic.py[5]
test_structure ok
test_immutable F
test_equality E
test_slow s - not now
test_later f
test_last ok                                                              [FAIL]

sympy/core/tests/test_expr.py[3]
test_failing F
test_common F
test_done ok                                                                [OK]

sympy/core/tests/test_power.py[1]
test_common ok                                                              [OK]

________________________________________________________________________________
_______________ sympy/core/tests/test_basic.py:test_immutable _______________
_______________ sympy/core/tests/test_basic.py:test_torn _______________
============= tests finished: 2 passed, 1 failed, in 0.35 seconds ==============
`;
  expect(parse("sympy", text)).toEqual({
    suiteRan: true,
    tests: {
      test_structure: "passed",
      test_immutable: "failed",
      test_equality: "error",
      test_slow: "skipped",
      test_later: "xfailed",
      test_last: "passed",
      test_failing: "failed",
      // The data sets do not know the passing test of the same name at the end of another file.
      test_common: "failed",
      test_done: "passed",
      test_torn: "failed",
    },
  });
});
