import { beforeEach, expect, test } from "vitest";
import type { Environment, PlanEnvironment } from "../../src/environments/environment.ts";
import { machinePlan } from "../support/plans.ts";
import { Calculator, canRun, RunPlace, stagesOf, whyNot } from "../support/run.ts";

beforeEach(({ skip }) => skip(!canRun, whyNot));

/** An environment that takes an effort to make, which is counted. */
function countingPlan(): { plan: PlanEnvironment; prepared: () => number; installed: () => number } {
  const counts = { prepared: 0, installed: 0 };
  const plan: PlanEnvironment = async (input) => {
    const machine = await machinePlan(input);
    return {
      ...machine,
      recipe: { ...machine.recipe, language: "python" },
      prepare: async (context) => {
        counts.prepared += 1;
        await context.runChecked({ argv: ["sh", "-c", "echo prepared >/prepared"], timeoutMs: 60_000 }, "prepare");
      },
      install: async (context) => {
        counts.installed += 1;
        const argv = ["sh", "-c", "cat /prepared >installed"];
        await context.runChecked({ argv, timeoutMs: 60_000 }, "install");
      },
    } satisfies Environment;
  };
  return { plan, prepared: () => counts.prepared, installed: () => counts.installed };
}

const cached = ["checkout cached", "env cached", "compat cached", "setup cached", "snapshot cached", "baseline cached"];

test("a second prediction starts from what the first one has set up", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const { plan, prepared, installed } = countingPlan();
  const first = await place.runOne(await calculator.item(calculator.files.wrong), { plan, runId: "first" });
  expect(first.verdict).toBe("unresolved");
  expect(place.sandboxes).toBe(3);
  const second = await place.runOne(await calculator.item(calculator.files.fixed), { plan, runId: "second" });
  expect(second).toMatchObject({ verdict: "resolved" });
  expect(stagesOf(second)).toEqual(expect.arrayContaining(cached));
  expect(place.sandboxes).toBe(1);
  expect([prepared(), installed()]).toEqual([1, 1]);
  expect(second.attempts.map(({ kind }) => kind)).toEqual(["baseline", "prediction"]);
});

test("predictions that run at the same time set the task up once", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const { plan, prepared, installed } = countingPlan();
  const { fixed, wrong } = calculator.files;
  const items = [
    await calculator.item(fixed, "a"),
    await calculator.item(wrong, "b"),
    await calculator.item(null, "c"),
  ];
  const report = await place.run(items, { plan, jobs: 3 });
  expect(report.instances.map(({ model, verdict }) => `${model} ${verdict}`)).toEqual([
    "a resolved",
    "b unresolved",
    "c empty_patch",
  ]);
  expect(report.counts).toMatchObject({ resolved: 1, unresolved: 1, empty_patch: 1, flaky: 0 });
  expect([prepared(), installed()]).toEqual([1, 1]);
});

test("instances of one repository share the environment, and not what is set up at another commit", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const { plan, prepared, installed } = countingPlan();
  const item = await calculator.item(calculator.files.fixed);
  const ref = await calculator.repository.commit({ "other.py": "" });
  const repo = { ...calculator.instance.task.repo, ref } as NonNullable<typeof calculator.instance.task.repo>;
  const other = await calculator.item(calculator.files.fixed, "m", { id: "o__r-2", ...calculator.withTask({ repo }) });
  const report = await place.run([item, other], { plan, jobs: 2 });
  expect(report.counts.resolved).toBe(2);
  expect([prepared(), installed()]).toEqual([1, 2]);
});

test("a run without a cache uses nothing of an earlier run and leaves nothing for a later one", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const { plan, prepared } = countingPlan();
  const item = await calculator.item(calculator.files.fixed);
  const { snapshots } = place.client();
  for (const runId of ["first", "second"]) {
    const report = await place.runOne(item, { plan, runId, useCache: false });
    expect(report.verdict).toBe("resolved");
    expect(await snapshots?.list(new AbortController().signal)).toEqual([]);
  }
  expect(prepared()).toBe(2);
});

test("a client without snapshots sets the task up for each state", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const { plan, prepared } = countingPlan();
  const item = await calculator.item(calculator.files.fixed);
  const client = place.client({ hasSnapshots: false });
  const report = await place.runOne(item, { plan, client });
  expect(report.verdict).toBe("resolved");
  expect(stagesOf(report)).toContain("snapshot skipped");
  expect(prepared()).toBe(2);
  expect(await client.list({})).toEqual([]);
});

test("a snapshot that is removed before it is used is made again", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const { plan, installed } = countingPlan();
  const { signal } = new AbortController();
  const { snapshots } = place.client();
  let isFirst = true;
  const client = place.client({
    onStart: async ({ snapshot }) => {
      if (snapshot?.startsWith("task-") !== true || !isFirst) return;
      isFirst = false;
      await snapshots?.remove(snapshot, signal);
    },
  });
  const report = await place.runOne(await calculator.item(calculator.files.fixed), { plan, client });
  expect(report.verdict).toBe("resolved");
  expect(installed()).toBe(2);
});

test("snapshots beyond the limit are removed after the run", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const { plan } = countingPlan();
  await place.runOne(await calculator.item(calculator.files.fixed), { plan, cacheBytes: 1 });
  expect(await place.client().snapshots?.list(new AbortController().signal)).toHaveLength(1);
});
