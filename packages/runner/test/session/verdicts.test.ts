import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { InstanceReport, RunReport } from "../../src/models/report.ts";
import type { Instance } from "../../src/models/task.ts";
import { runInstances } from "../../src/run/run-instances.ts";
import type { RunOptions } from "../../src/run/run-options.ts";
import { type Files, GitRepository } from "../support/git-repository.ts";
import { LocalClient } from "../support/local-client.ts";
import { instanceOf, machinePlan } from "../support/plans.ts";

let root: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "atoll-runner-session-"));
});

afterEach(() => rm(root, { recursive: true, force: true }));

const optionsFor = (items: RunOptions["items"], more: Partial<RunOptions> = {}): RunOptions => ({
  runId: "run",
  directory: join(root, "run"),
  cacheDirectory: join(root, "cache"),
  client: new LocalClient(join(root, "client")),
  items,
  plan: machinePlan,
  signal: new AbortController().signal,
  ...more,
});

const source = { "calc.py": "def add(a, b):\n    return a - b\n\n\ndef one():\n    return 1\n" };
const fixed = { "calc.py": source["calc.py"].replace("a - b", "a + b") };
const testsBefore = "import calc\n\n\ndef test_one():\n    assert calc.one() == 1\n";
const testsAfter = `${testsBefore}\n\ndef test_add():\n    assert calc.add(1, 2) == 3\n`;

/** A repository with one bug, its fix, and the test that shows it. */
async function calculator(): Promise<{ repository: GitRepository; instance: Instance; gold: string }> {
  const repository = await GitRepository.make({ ...source, "test_calc.py": testsBefore });
  const commit = (await repository.git("rev-parse", "HEAD")).trim();
  const instance = instanceOf(repository.path, commit, {
    testPatch: await repository.patch({ "test_calc.py": testsAfter }),
    task: {
      test: ["python3", "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_calc.py"],
      parser: "pytest",
      failToPass: ["test_calc.py::test_add"],
      passToPass: ["test_calc.py::test_one"],
    },
  });
  return { repository, instance, gold: await repository.patch(fixed) };
}

const only = (report: RunReport): InstanceReport => {
  expect(report.instances).toHaveLength(1);
  return report.instances[0] as InstanceReport;
};

test("the fix resolves the instance, and every stage is in the report", async () => {
  const { repository, instance, gold } = await calculator();
  await using _repository = repository;
  const prediction = { instanceId: instance.id, model: "gold", patch: gold };
  const report = only(await runInstances(optionsFor([{ instance, prediction }])));
  expect(report).toMatchObject({ verdict: "resolved", patchApplied: true, flagged: [] });
  expect(report.stages.map(({ stage, status }) => `${stage} ${status}`)).toEqual([
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

const failingFix = { "calc.py": source["calc.py"].replace("a - b", "a * b") };

const rows: [string, object | string | null, Partial<InstanceReport>][] = [
  ["no patch", null, { verdict: "empty_patch", patchExists: false, patchApplied: false }],
  ["a patch of blank lines", "\n\n", { verdict: "empty_patch", patchExists: false }],
  ["a patch that fixes nothing", failingFix, { verdict: "unresolved", patchApplied: true }],
  [
    "a patch that fixes the bug and breaks something else",
    { "calc.py": fixed["calc.py"].replace("return 1", "return 2") },
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
    { ...failingFix, "test_calc.py": `${testsBefore}\n\ndef test_add():\n    pass\n` },
    { verdict: "unresolved" },
  ],
  [
    "a patch that puts a link in place of the tests",
    { ...fixed, "test_calc.py": { link: "/etc/hostname" } },
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
      ...fixed,
      "conftest.py":
        "def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if 'canary' not in i.name]\n",
    },
    { verdict: "tampered" },
  ],
];

test.for(rows)("%s", async ([, change, expected]) => {
  const { repository, instance } = await calculator();
  await using _repository = repository;
  const isPatch = typeof change === "string" || change === null;
  const patch = isPatch ? change : await repository.patch(change as Files);
  const prediction = { instanceId: instance.id, model: "m", patch };
  const client = new LocalClient(join(root, "client"));
  expect(only(await runInstances(optionsFor([{ instance, prediction }], { client })))).toMatchObject(expected);
  expect(await client.list({})).toEqual([]);
});

test("a prediction of several fixes that makes only some of them is partial", async () => {
  const { repository, instance } = await calculator();
  await using _repository = repository;
  const task = { ...instance.task, failToPass: ["test_calc.py::test_add", "test_calc.py::test_two"] };
  const testPatch = await repository.patch({
    "test_calc.py": `${testsAfter}\n\ndef test_two():\n    assert calc.two() == 2\n`,
  });
  const prediction = { instanceId: instance.id, model: "m", patch: await repository.patch(fixed) };
  const items = [{ instance: { ...instance, task, testPatch }, prediction }];
  expect(only(await runInstances(optionsFor(items)))).toMatchObject({ verdict: "partial" });
});

test("a hanging test is a timeout of the prediction, and of the environment when it hangs before", async () => {
  const { repository, instance } = await calculator();
  await using _repository = repository;
  const hanging = {
    "calc.py": "import time\n\n\ndef add(a, b):\n    time.sleep(1000)\n\n\ndef one():\n    return 1\n",
  };
  const sandbox = { ...instance.task.sandbox, testTimeoutMs: 3_000 };
  const slow = { ...instance, task: { ...instance.task, sandbox } };
  const prediction = { instanceId: instance.id, model: "m", patch: await repository.patch(hanging) };
  const report = only(await runInstances(optionsFor([{ instance: slow, prediction }])));
  expect(report).toMatchObject({ verdict: "timeout", reason: expect.stringContaining("timeout after 3 s") });
  const before = await repository.commit(hanging);
  const broken = {
    ...slow,
    id: "o__r-2",
    task: { ...slow.task, repo: { ...slow.task.repo, ref: before } },
  } as Instance;
  const other = { instanceId: "o__r-2", model: "m", patch: await repository.patch({ "other.py": "" }) };
  const second = optionsFor(
    [{ instance: broken, prediction: { ...other, patch: await repository.patch({ new: "x" }) } }],
    {
      runId: "second",
      directory: join(root, "second"),
    },
  );
  expect(only(await runInstances(second))).toMatchObject({ verdict: "env_invalid" });
});

test("a task whose tests do not fail before the fix is an invalid environment, whatever the prediction does", async () => {
  const { repository, instance } = await calculator();
  await using _repository = repository;
  const task = { ...instance.task, failToPass: ["test_calc.py::test_one"], passToPass: [] };
  const prediction = { instanceId: instance.id, model: "m", patch: await repository.patch(fixed) };
  const report = only(await runInstances(optionsFor([{ instance: { ...instance, task }, prediction }])));
  expect(report).toMatchObject({ verdict: "env_invalid", reason: expect.stringContaining("already pass") });
});
