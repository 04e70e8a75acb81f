import type { Symptoms } from "../compat/compat-fix.ts";
import { checkBaseline } from "../grading/baseline.ts";
import { hasLists } from "../grading/expectation.ts";
import { failsPassToPassOnly, grade as gradeAttempts } from "../grading/grade.ts";
import { meets, missingTests } from "../grading/test-results.ts";
import type { AttemptResult } from "../models/report.ts";
import type { TaskSpec } from "../models/task.ts";
import { Repository } from "../repository/repository.ts";
import { type Attempt, runAttempt } from "./attempt.ts";
import { checkout, compat, env, openTask, type Outcome, setup, snapshot } from "./build.ts";
import { flaggedFiles } from "./flagged-files.ts";
import { type Changes, isEmptyPatch, makeChanges } from "./patch.ts";
import type { StageRow } from "./session.ts";
import type { Work } from "./work.ts";

const minuteMs = 60_000;

/** Test runs beyond the first when only tests fail that should keep passing: such a failure may be chance. */
const secondLooks = 2;

export interface Stage extends Omit<StageRow, "timeoutMs"> {
  timeoutMs: (work: Work) => number;
  run: (work: Work) => Promise<Outcome>;
}

const setupTime = ({ session }: Work): number => 2 * session.config.setupTimeoutMs + 10 * minuteMs;

const testTime = ({ session, plan }: Work): number => {
  const { testTimeoutMs, setupTimeoutMs } = session.config;
  const runs = Math.max(session.services.repeat, 1 + secondLooks);
  return runs * (testTimeoutMs + plan.command.build.length * setupTimeoutMs + 10 * minuteMs);
};

/**
 * The stages of an item, in order. `report` and `teardown` follow, whatever happens. The result of `snapshot` depends
 * only on the input of the snapshots' keys, so it is made once and shared.
 */
export const stages: readonly Stage[] = [
  { name: "resolve", timeoutMs: () => 30 * minuteMs, tries: 2, run: resolve },
  { name: "checkout", timeoutMs: () => 20 * minuteMs, tries: 2, run: checkout },
  { name: "env", timeoutMs: setupTime, tries: 2, run: env },
  { name: "compat", timeoutMs: setupTime, tries: 1, run: compat },
  { name: "setup", timeoutMs: setupTime, tries: 1, run: setup },
  { name: "snapshot", timeoutMs: () => 20 * minuteMs, tries: 2, run: snapshot },
  { name: "baseline", timeoutMs: testTime, tries: 2, run: baseline },
  { name: "apply", timeoutMs: () => 20 * minuteMs, tries: 2, run: apply },
  { name: "test", timeoutMs: testTime, tries: 2, run: test },
  { name: "grade", timeoutMs: () => minuteMs, tries: 1, run: grade },
];

async function resolve(work: Work): Promise<Outcome> {
  const { item, services, scratch, signal } = work.session;
  const { cacheDirectory } = services;
  if (item.repo !== undefined) {
    await work.repository?.[Symbol.asyncDispose]();
    work.repository = await Repository.open(item.repo, { cacheDirectory, scratch, signal });
  }
  await work.readRecord();
  const { testPatch } = item.instance;
  if (work.repository !== undefined && testPatch.trim() !== "") {
    work.testPaths = work.record.testPaths ?? (await work.repository.changedPaths(testPatch, "The test patch"));
  }
  await work.makePlan();
  return { status: "ok", ...(work.repository === undefined ? {} : { reason: work.repository.commit }) };
}

/** The tests as they are before the prediction: what has to fail fails, and what has to pass passes. */
async function baseline(work: Work): Promise<Outcome> {
  const { session, record, task } = work;
  const { item, services } = session;
  const known = record.baseline;
  if (item.prediction !== null && known !== undefined && known.key === work.plan.baselineKey) {
    session.attempts.push(...known.attempts);
    return { status: "cached" };
  }
  const attempts: Attempt[] = [];
  const attempt = async (seed: number): Promise<Attempt> => {
    await openTask(work);
    await makeChanges(work.context(), testsOf(work), "environment");
    const made = await runAttempt(work, "baseline", seed);
    report(work, made.result);
    attempts.push(made);
    return made;
  };
  const [firstSeed = 0, ...seeds] = services.seeds;
  const first = await attempt(firstSeed);
  let check = checkBaseline(first.result, task);
  if (!check.held) {
    const symptoms = symptomsOfTests(task, first);
    // Tests that should fail and pass are no sign of an environment that lacks something.
    const isComplete = hasLists(task) && symptoms.missing.length === 0 && symptoms.failing.length === 0;
    const again = isComplete ? undefined : await work.findFixesOfTests(work.context(), symptoms);
    if (again !== undefined) {
      await session.removeSandbox();
      await work.makePlan();
      const names = work.fixes.map(({ applied }) => applied.id).join(", ");
      const how = names === "" ? "without a fix" : `with ${names}`;
      return { status: "failed", reason: `${check.why}; again ${how}`, again };
    }
    // The failure may be chance, which a second look shows.
    if (check.showsFault && first.result.command?.end.kind === "exit") {
      check = checkBaseline((await attempt(seeds[0] ?? firstSeed + 1)).result, task);
    }
  }
  if (item.prediction === null) {
    for (const seed of seeds.slice(attempts.length - 1, services.repeat - 1)) await attempt(seed);
  }
  await session.removeSandbox();
  const results = attempts.map(({ result }) => result);
  session.attempts.push(...results);
  if (check.held) {
    const kept = results.map(withoutOutput);
    const fixes = work.reportFixes().map((applied, at) => ({ applied, plan: work.fixes[at]?.plan ?? {} }));
    await work.saveRecord({
      fixes,
      testPaths: [...work.testPaths],
      baseline: { key: work.plan.baselineKey, attempts: kept },
    });
  }
  return check.held ? { status: "ok" } : { status: "ok", reason: check.why };
}

/** A test run without its output, whose files belong to this run. How its command ended is part of the result. */
function withoutOutput(result: AttemptResult): AttemptResult {
  const { command } = result;
  const nothing = { path: "", bytes: 0, dropped: 0, sha256: "", head: "", tail: "" };
  return { ...result, command: command && { ...command, stdout: nothing, stderr: nothing } };
}

function symptomsOfTests(task: TaskSpec, { result, text }: Attempt): Symptoms {
  const { tests } = result;
  const missing = missingTests([...task.failToPass, ...task.passToPass], tests);
  const failing = task.passToPass.filter(
    (id) => !missing.includes(id) && !meets(id, "passToPass", tests, task.failOnly),
  );
  return { text, missing, seen: Object.keys(tests), failing };
}

async function apply(work: Work): Promise<Outcome> {
  const { prediction } = work.session.item;
  if (prediction === null) return { status: "skipped", reason: "there is no prediction" };
  return { status: "ok", reason: await openPatched(work) };
}

/** A new sandbox with the prediction, and over it the tests of the task. */
async function openPatched(work: Work): Promise<string> {
  await openTask(work);
  const patch = work.session.item.prediction?.patch ?? "";
  const how = await makeChanges(work.context(), { patch, ...testsOf(work) }, "prediction");
  work.patchApplied = true;
  return how;
}

function testsOf({ session, testPaths }: Work): Changes {
  const { testPatch } = session.item.instance;
  return testPatch.trim() === "" ? {} : { tests: { patch: testPatch, changed: testPaths } };
}

async function test(work: Work): Promise<Outcome> {
  const { session, task } = work;
  const { item, services } = session;
  if (item.prediction === null) return { status: "skipped", reason: "there is no prediction" };
  const attempts: AttemptResult[] = [];
  const attempt = async (seed: number): Promise<AttemptResult> => {
    if (!session.hasSandbox) await openPatched(work);
    const { result } = await runAttempt(work, "prediction", seed);
    await session.removeSandbox();
    report(work, result);
    attempts.push(result);
    return result;
  };
  try {
    const planned = services.seeds.slice(0, services.repeat);
    for (const seed of planned) await attempt(seed);
    const [only] = attempts;
    if (attempts.length === 1 && only !== undefined && failsPassToPassOnly(task, only)) {
      for (const seed of services.seeds.slice(1, 1 + secondLooks)) await attempt(seed);
    }
  } catch (error) {
    // Another try starts in a sandbox in which nothing has run.
    await session.removeSandbox();
    throw error;
  }
  session.attempts.push(...attempts);
  return { status: "ok" };
}

async function grade(work: Work): Promise<Outcome> {
  const { item, attempts, services } = work.session;
  const { prediction } = item;
  const patch = prediction?.patch ?? "";
  work.grade = gradeAttempts({
    expected: work.task,
    prediction: prediction === null ? null : { empty: isEmptyPatch(prediction.patch), flagged: flaggedFiles(patch) },
    attempts,
    quarantine: services.quarantine,
  });
  return { status: "ok", reason: work.grade.verdict };
}

function report(work: Work, { kind, seed, tests }: AttemptResult): void {
  const statuses = Object.values(tests);
  const passed = statuses.filter((status) => status === "passed" || status === "xfailed").length;
  const failed = statuses.filter((status) => status === "failed" || status === "error").length;
  const { item, services } = work.session;
  services.emit({ type: "attempt.end", instance: item.label, kind, seed, passed, failed });
}
