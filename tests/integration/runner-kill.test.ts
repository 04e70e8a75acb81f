import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { type InstanceReport, type RunItem, runInstances, type RunReport, type SandboxClient } from "@atoll/runner";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { machinePlan } from "../../packages/runner/test/support/plans.ts";
import { Calculator, canRun, RunPlace, whyNot } from "../../packages/runner/test/support/run.ts";
import { thorough } from "../../tools/thoroughness.mjs";
import { clientOf, type RunnerWorkerOptions } from "../support/programs/runner-worker.ts";
import { programPath } from "../support/programs/test-programs.ts";
import { startTestServer } from "../support/test-server.ts";

/** Runs the program until it has killed itself. */
async function runKilled(options: RunnerWorkerOptions): Promise<void> {
  const child = spawn(process.execPath, [programPath("runner-worker"), JSON.stringify(options)], { stdio: "inherit" });
  const [code, signal] = (await once(child, "exit")) as [number | null, string | null];
  expect({ code, signal }).toEqual({ code: null, signal: "SIGKILL" });
}

const rerun = (options: RunnerWorkerOptions, client: SandboxClient): Promise<RunReport> =>
  runInstances({ ...options, runId: "run", client, plan: machinePlan, signal: new AbortController().signal });

/** What a report says, without times, paths, and how much of the way was in the cache. */
const contentOf = ({ instances, counts, interrupted }: RunReport): object => ({
  counts,
  interrupted,
  instances: instances.map((instance: InstanceReport) => ({
    ...instance,
    startedAt: "",
    durationMs: 0,
    stages: [...new Set(instance.stages.map(({ stage }) => stage))],
    attempts: instance.attempts.map(({ kind, seed, tests, canary, suiteRan }) => ({
      kind,
      seed,
      tests,
      canary,
      suiteRan,
    })),
  })),
});

const setup = ["echo made >made.txt"];

type Step = [type: string, stage: string];

/** One step of every stage: those at which what is stored, or what there is to remove, differs. */
const ownSteps: Step[] = [
  ["stage.start", "resolve"],
  ["stage.start", "checkout"],
  ["command.start", "env"],
  ["stage.start", "compat"],
  ["command.end", "setup"],
  ["stage.end", "snapshot"],
  ["command.output", "baseline"],
  ["command.end", "apply"],
  ["command.output", "test"],
  ["stage.start", "grade"],
  ["stage.end", "report"],
  ["stage.start", "teardown"],
];
const otherSteps: Step[] = [
  ["stage.start", "snapshot"],
  ["command.start", "baseline"],
  ["stage.end", "baseline"],
  ["stage.end", "teardown"],
];

/** Runs the tests and prints what pytest would, in a tenth of its time: this file starts them a hundred times. */
const runTests = `import test_calc
for name, test in sorted(vars(test_calc).items()):
    if name.startswith("test_"):
        try:
            test()
            print("PASSED test_calc.py::" + name)
        except AssertionError:
            print("FAILED test_calc.py::" + name)
`;

const makeCalculator = (): Promise<Calculator> => Calculator.make({}, { setup, test: ["python3", "-c", runTests] });

async function itemsOf(calculator: Calculator): Promise<RunItem[]> {
  const { fixed, wrong } = calculator.files;
  return [await calculator.item(wrong, "wrong"), await calculator.item(fixed, "fixed")];
}

describe("processes of this machine", () => {
  let place: RunPlace;
  let calculator: Calculator;
  let items: RunItem[];
  let undisturbed: RunReport;

  beforeAll(async () => {
    if (!canRun) return;
    place = await RunPlace.make();
    calculator = await makeCalculator();
    items = await itemsOf(calculator);
    undisturbed = await place.run(items);
  });
  afterAll(async () => {
    if (!canRun) return;
    await calculator[Symbol.asyncDispose]();
    await place[Symbol.asyncDispose]();
  });
  beforeEach(({ skip }) => skip(!canRun, whyNot));

  test.for(thorough(ownSteps, [...ownSteps, ...otherSteps]))(
    "a runner that is killed at %s of %s has the same report after a rerun",
    async ([type, stage]) => {
      const root = join(place.root, `${type}-${stage}`);
      const sandboxes = { local: join(root, "client") };
      const directory = join(root, "run");
      const options = { directory, cacheDirectory: join(root, "cache"), items, sandboxes };
      await runKilled({ ...options, killAt: { type, stage } });
      await using client = clientOf(sandboxes);
      expect(contentOf(await rerun(options, client))).toEqual(contentOf(undisturbed));
      expect(await client.list({}, new AbortController().signal)).toEqual([]);
      expect(await readdir(directory)).not.toContain("run.lock");
      expect(await readdir(join(directory, "scratch"))).toEqual([]);
    },
  );
});

describe("gVisor", { tags: "gvisor" }, () => {
  const stages = thorough(["test"], ["setup", "test"]);
  test.for(stages)("nothing of a runner that is killed in %s is left on the server", async (stage) => {
    await using place = await RunPlace.make();
    await using calculator = await makeCalculator();
    await using server = await startTestServer();
    const [item] = (await itemsOf(calculator)).toReversed();
    const sandboxes = { url: server.url, key: server.key };
    const directory = join(place.root, "run");
    const items = item === undefined ? [] : [item];
    const options = { directory, cacheDirectory: join(place.root, "cache"), items, sandboxes };
    await runKilled({ ...options, killAt: { type: "command.start", stage } });
    await using client = clientOf(sandboxes);
    const { signal } = new AbortController();
    expect(await client.list({ "atoll.runner.run": "run" }, signal)).toHaveLength(1);
    const report = await rerun(options, client);
    expect(report.instances).toMatchObject([{ verdict: "resolved" }]);
    expect(await client.list({}, signal)).toEqual([]);
  });
});
