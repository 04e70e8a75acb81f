import { beforeEach, expect, test } from "vitest";
import type { InstanceReport } from "../../src/models/report.ts";
import type { Instance } from "../../src/models/task.ts";
import type { Files } from "../support/git-repository.ts";
import { Calculator, canRun, RunPlace, stagesOf, whyNot } from "../support/run.ts";

beforeEach(({ skip }) => skip(!canRun, whyNot));

test("the fix resolves the instance, and every stage is in the report", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const report = await place.runOne(await calculator.item(calculator.files.fixed));
  expect(report).toMatchObject({ verdict: "resolved", patchApplied: true, flagged: [] });
  expect(stagesOf(report)).toEqual([
    "resolve ok",
    "checkout ok",
    "env ok",
    "compat skipped",
    "setup ok",
    "snapshot ok",
    "baseline ok",
    "apply ok",
    "test ok",
    "grade ok",
    "report ok",
    "teardown ok",
  ]);
});

const broken = "def add(a, b):\n    return a * b\n\n\ndef one():\n    return 1\n";
const fixed = broken.replace("a * b", "a + b");

const rows: [string, object | string | null, Partial<InstanceReport>][] = [
  ["no patch", null, { verdict: "empty_patch", patchExists: false, patchApplied: false }],
  ["a patch of blank lines", "\n\n", { verdict: "empty_patch", patchExists: false }],
  ["a patch that fixes nothing", { "calc.py": broken }, { verdict: "unresolved", patchApplied: true }],
  [
    "a patch that fixes the bug and breaks something else",
    { "calc.py": fixed.replace("return 1", "return 2") },
    { verdict: "unresolved" },
  ],
  ["a patch that breaks the import", { "calc.py": "(" }, { verdict: "unresolved" }],
  [
    "a patch for other files",
    "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    { verdict: "apply_failed" },
  ],
  [
    "a patch that makes the test itself pass",
    { "calc.py": broken, "test_calc.py": "def test_one():\n    pass\n\n\ndef test_add():\n    pass\n" },
    { verdict: "unresolved" },
  ],
  [
    "a patch that puts a link in place of the tests",
    { "calc.py": fixed, "test_calc.py": { link: "/etc/hostname" } },
    { verdict: "resolved" },
  ],
  [
    "a conftest that reports every test as passed",
    {
      "conftest.py": [
        "import pytest",
        "@pytest.hookimpl(hookwrapper=True)",
        "def pytest_runtest_makereport(item, call):",
        "    outcome = yield",
        "    report = outcome.get_result()",
        '    report.outcome, report.longrepr = "passed", None',
        "",
      ].join("\n"),
    },
    { verdict: "tampered", flagged: ["conftest.py"] },
  ],
  [
    "a conftest that hides the canary",
    {
      "calc.py": fixed,
      "conftest.py":
        "def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if 'canary' not in i.name]\n",
    },
    { verdict: "tampered" },
  ],
];

test.for(rows)("%s", async ([, change, expected]) => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const item = await calculator.item(change as Files | string | null);
  expect(await place.runOne(item)).toMatchObject(expected);
  expect(await place.client().list({})).toEqual([]);
});

test("a prediction that makes only some of several fixes is partial", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const tests = `${calculator.testsAfter}\n\ndef test_two():\n    assert calc.two() == 2\n`;
  const testPatch = await calculator.repository.patch({ "test_calc.py": tests });
  const failToPass = ["test_calc.py::test_add", "test_calc.py::test_two"];
  const item = await calculator.item(calculator.files.fixed, "m", {
    testPatch,
    ...calculator.withTask({ failToPass }),
  });
  expect(await place.runOne(item)).toMatchObject({ verdict: "partial" });
});

const hanging = { "calc.py": "import time\n\n\ndef add(a, b):\n    time.sleep(1000)\n\n\ndef one():\n    return 1\n" };

test("a test that hangs is a timeout", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const sandbox = { ...calculator.instance.task.sandbox, testTimeoutMs: 5_000 };
  const report = await place.runOne(await calculator.item(hanging, "m", calculator.withTask({ sandbox })));
  expect(report).toMatchObject({ verdict: "timeout", reason: expect.stringContaining("timeout after 5 s") });
});

test("a test that hangs before the prediction is the fault of the environment", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make(hanging);
  const sandbox = { ...calculator.instance.task.sandbox, testTimeoutMs: 5_000 };
  const report = await place.runOne(await calculator.item({ other: "x" }, "m", calculator.withTask({ sandbox })));
  expect(report).toMatchObject({ verdict: "env_invalid", reason: expect.stringContaining("did not finish") });
});

test("tests that do not fail before the fix make the environment invalid, whatever the prediction does", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const task = calculator.withTask({ failToPass: ["test_calc.py::test_one"], passToPass: [] });
  const report = await place.runOne(await calculator.item(calculator.files.fixed, "m", task));
  expect(report).toMatchObject({ verdict: "env_invalid", reason: expect.stringContaining("already pass") });
});

const tasks: [string, Partial<Instance["task"]>, Partial<InstanceReport>][] = [
  ["tests that pass", { test: "true" }, { verdict: "resolved" }],
  ["tests that fail", { test: "false" }, { verdict: "unresolved" }],
  ["tests that fail, as expected", { test: "false", expectedFail: true }, { verdict: "resolved" }],
  ["a command that is not there", { test: "absent-command" }, { verdict: "env_invalid" }],
  ["a set-up command that fails", { test: "true", setup: ["echo broken >&2; exit 3"] }, { verdict: "env_invalid" }],
];

test.for(tasks)("a task without a prediction: %s", async ([, task, expected]) => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make({}, { failToPass: [], passToPass: [], parser: "exit-code" });
  const { instance } = calculator;
  const item = { instance: { ...instance, testPatch: "", task: { ...instance.task, ...task } }, prediction: null };
  expect(await place.runOne(item)).toMatchObject(expected);
});
