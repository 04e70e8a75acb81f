import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { type InstanceReport, type RunItem, runInstances, type RunReport, type SandboxClient } from "@atoll/runner";
import { beforeEach, describe, expect, test } from "vitest";
import { machinePlan } from "../../packages/runner/test/support/plans.ts";
import { Calculator, canRun, RunPlace, whyNot } from "../../packages/runner/test/support/run.ts";
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
const steps: [string, string][] = [
  ["stage.start", "resolve"],
  ["stage.start", "checkout"],
  ["command.start", "env"],
  ["stage.start", "compat"],
  ["command.end", "setup"],
  ["stage.start", "snapshot"],
  ["stage.end", "snapshot"],
  ["command.start", "baseline"],
  ["command.output", "baseline"],
  ["stage.end", "baseline"],
  ["command.end", "apply"],
  ["command.output", "test"],
  ["stage.start", "grade"],
  ["stage.end", "report"],
  ["stage.start", "teardown"],
  ["stage.end", "teardown"],
];

async function itemsOf(calculator: Calculator): Promise<RunItem[]> {
  const { fixed, wrong } = calculator.files;
  return [await calculator.item(wrong, "wrong"), await calculator.item(fixed, "fixed")];
}

describe("processes of this machine", () => {
  beforeEach(({ skip }) => skip(!canRun, whyNot));

  test.for(steps)("a runner that is killed at %s of %s has the same report after a rerun", async ([type, stage]) => {
    await using place = await RunPlace.make();
    await using calculator = await Calculator.make({}, { setup });
    const items = await itemsOf(calculator);
    const undisturbed = await place.run(items);
    const root = join(place.root, "killed");
    const sandboxes = { local: join(root, "client") };
    const directory = join(root, "run");
    const options = { directory, cacheDirectory: join(root, "cache"), items, sandboxes };
    await runKilled({ ...options, killAt: { type, stage } });
    await using client = clientOf(sandboxes);
    expect(contentOf(await rerun(options, client))).toEqual(contentOf(undisturbed));
    expect(await client.list({}, new AbortController().signal)).toEqual([]);
    expect(await readdir(directory)).not.toContain("run.lock");
    expect(await readdir(join(directory, "scratch"))).toEqual([]);
  });
});

describe("gVisor", { tags: "gvisor" }, () => {
  test.for(["setup", "test"])("nothing of a runner that is killed in %s is left on the server", async (stage) => {
    await using place = await RunPlace.make();
    await using calculator = await Calculator.make({}, { setup });
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
