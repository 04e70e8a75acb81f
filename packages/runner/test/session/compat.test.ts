import { beforeEach, expect, test } from "vitest";
import type { CompatFix } from "../../src/compat/compat-fix.ts";
import type { PlanEnvironment } from "../../src/environments/environment.ts";
import { machinePlan } from "../support/plans.ts";
import { Calculator, canRun, RunPlace, stagesOf, whyNot } from "../support/run.ts";

beforeEach(({ skip }) => skip(!canRun, whyNot));

const fix = (id: string, more: Partial<CompatFix>): CompatFix => ({
  id,
  layer: "env",
  languages: ["python"],
  risk: "none",
  why: "The old way is gone.",
  what: "Brings it back.",
  detect: ({ text }) => new RegExp(`no ${id}`).exec(text)?.[0],
  plan: () => ({ env: { [id.toUpperCase()]: "1" } }),
  ...more,
});

const variable = fix("variable", {});
const file = fix("file", { layer: "shim", plan: () => ({ files: { "compat.txt": "1" } }) });
const never = fix("never", { detect: () => undefined });

const plan: PlanEnvironment = async (input) => ({
  ...(await machinePlan(input)),
  apply: async (context, _fix, { files }) => {
    for (const [path, content] of Object.entries(files ?? {})) {
      await context.writeFile(`${context.workdir}/${path}`, content);
    }
  },
});

/** Needs a variable, and when it has that, a file. */
const old = {
  "conftest.py": [
    "import os, pathlib",
    'assert "VARIABLE" in os.environ, "no variable"',
    'assert pathlib.Path("compat.txt").exists(), "no file"',
    "",
  ].join("\n"),
};

const options = { plan, fixes: [never, variable, file] };

test("fixes are found by their symptoms, one layer after the other, and the next run starts with them", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make(old);
  const first = await place.runOne(await calculator.item(calculator.files.wrong), { ...options, runId: "first" });
  expect(first.verdict).toBe("unresolved");
  expect(first.fixes).toMatchObject([
    { id: "variable", symptom: "no variable", used: null },
    { id: "file", symptom: "no file" },
  ]);
  expect(stagesOf(first).filter((stage) => stage.startsWith("baseline"))).toEqual([
    "baseline failed",
    "baseline failed",
    "baseline ok",
  ]);
  const second = await place.runOne(await calculator.item(calculator.files.fixed), { ...options, runId: "second" });
  expect(second.verdict).toBe("resolved");
  expect(stagesOf(second)).toContain("baseline cached");
  expect(second.fixes.map(({ id }) => id)).toEqual(["variable", "file"]);
  expect(place.events.some(({ type }) => type === "fix.apply")).toBe(false);
});

test("what a fix lays in is no part of a diff", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make(old, { setup: [] });
  const item = await calculator.item(calculator.files.fixed);
  const status = calculator.withTask({ build: ['test -z "$(git status --short compat.txt)"'] });
  const report = await place.runOne({ ...item, instance: { ...item.instance, ...status } }, options);
  expect(report).toMatchObject({ verdict: "resolved" });
});

test("with suggestions only, nothing is changed and the report says what would be", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make(old);
  const item = await calculator.item(calculator.files.fixed);
  const report = await place.runOne(item, { ...options, compatMode: "suggest" });
  expect(report).toMatchObject({ verdict: "env_invalid", fixes: [], suggestedFixes: [{ id: "variable" }] });
});

test.for([
  ["fixes are off", { compatMode: "off" as const }, {}],
  ["a fix is never to be applied", {}, { never: ["variable"] }],
])("when %s, the environment stays invalid", async ([, more, compat]) => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make(old);
  const { repo } = calculator.instance.task;
  if (repo === undefined) throw new Error("there is no repository");
  const changed = { ...repo, compat: { ...repo.compat, ...(compat as object) } };
  const item = await calculator.item(calculator.files.fixed, "m", calculator.withTask({ repo: changed }));
  const report = await place.runOne(item, { ...options, ...(more as object) });
  expect(report).toMatchObject({ verdict: "env_invalid", fixes: [] });
});

test("fixes that are asked for are applied from the start, also in a second run", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make(old);
  const environment = { ...calculator.instance.task.environment, fixes: ["file", "variable"] };
  const item = await calculator.item(calculator.files.fixed, "m", calculator.withTask({ environment }));
  for (const runId of ["first", "second"]) {
    const report = await place.runOne(item, { ...options, runId });
    expect(report).toMatchObject({ verdict: "resolved", fixes: [{ symptom: "requested" }, { symptom: "requested" }] });
    expect(stagesOf(report).filter((stage) => stage.startsWith("baseline"))).toHaveLength(1);
  }
});

test("a fix that is asked for and unknown is named", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const environment = { ...calculator.instance.task.environment, fixes: ["absent"] };
  const item = await calculator.item(calculator.files.fixed, "m", calculator.withTask({ environment }));
  const report = await place.runOne(item, options);
  expect(report).toMatchObject({ verdict: "env_invalid", reason: expect.stringContaining("no fix absent") });
});

test("a fix is also found by what a set-up command prints", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const setup = ['test "$VARIABLE" = 1 || { echo "no variable" >&2; exit 1; }'];
  const item = await calculator.item(calculator.files.fixed, "m", calculator.withTask({ setup }));
  const report = await place.runOne(item, options);
  expect(report).toMatchObject({ verdict: "resolved", fixes: [{ id: "variable" }] });
  expect(stagesOf(report)).toEqual(expect.arrayContaining(["setup failed", "setup ok"]));
});

test("the search ends when fixes do not help", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make({ "conftest.py": 'raise Exception("still broken")\n' });
  const fixes = Array.from({ length: 9 }, (_, at) =>
    fix(`useless-${at}`, {
      detect: (_symptoms, facts) => (facts.packages["x"] === undefined ? "still broken" : undefined),
    }),
  ).map((each, at) => ({ ...each, layer: (["env", "shim", "packages", "command"] as const)[at % 4] ?? "env" }));
  const report = await place.runOne(await calculator.item(calculator.files.fixed), { plan, fixes });
  expect(report).toMatchObject({ verdict: "env_invalid" });
  expect(stagesOf(report).filter((stage) => stage === "baseline failed").length).toBeLessThanOrEqual(6);
});

test("a fix with which more tests fail is taken back", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make({
    "conftest.py": [
      "import os, pytest",
      "@pytest.fixture(autouse=True)",
      "def _needs(request):",
      '    assert "VARIABLE" in os.environ or request.node.name != "test_one", "no file"',
      "",
    ].join("\n"),
  });
  const late = fix("variable", { layer: "command", detect: ({ text }) => /no file/.exec(text)?.[0] });
  const item = await calculator.item(calculator.files.fixed);
  const harmful = fix("harmful", {
    layer: "env",
    detect: ({ text }) => /no file/.exec(text)?.[0],
    plan: () => ({ appendArgs: ["--collect-only"] }),
  });
  const report = await place.runOne(item, { plan, fixes: [harmful, late] });
  expect(report).toMatchObject({ verdict: "resolved", fixes: [{ id: "variable" }] });
  expect(stagesOf(report).filter((stage) => stage.startsWith("baseline"))).toEqual([
    "baseline failed",
    "baseline failed",
    "baseline ok",
  ]);
});
