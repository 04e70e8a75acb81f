import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { grade, verdictOfFailure } from "../grading/grade.ts";
import type { InstanceReport, StageName } from "../models/report.ts";
import { flaggedFiles } from "./flagged-files.ts";
import { isEmptyPatch } from "./patch.ts";
import { Session, type SessionItem, type SessionServices, type StageOutcome, type StageRow } from "./session.ts";
import { StageFailure } from "./stage-context.ts";
import { type Stage, stages } from "./stages.ts";
import { Work } from "./work.ts";

const minuteMs = 60_000;

/** Runs one item to its report. Rejects only with the reason of the signal: everything else is a verdict. */
export async function runSession(
  services: SessionServices,
  item: SessionItem,
  signal: AbortSignal,
): Promise<InstanceReport> {
  const startedAt = new Date().toISOString();
  const startMs = performance.now();
  const session = await Session.open(services, item, signal);
  const work = new Work(session);
  let failed: Failed | undefined;
  try {
    await mkdir(join(services.directory, "logs", item.label), { recursive: true });
    if (!isEmpty(item)) failed = await runStages(work);
    failed ??= await storePrediction(work);
  } finally {
    await tearDown(work);
  }
  const report: InstanceReport = {
    schemaVersion: 1,
    id: item.instance.id,
    repo: item.instance.repo,
    model: item.prediction?.model ?? "",
    key: item.key,
    ...gradeOf(work, failed),
    patchExists: item.prediction !== null && !isEmpty(item),
    patchApplied: work.patchApplied,
    stages: session.stages,
    attempts: session.attempts,
    fixes: work.reportFixes(),
    suggestedFixes: work.suggested,
    flagged: flaggedFiles(item.prediction?.patch ?? ""),
    startedAt,
    durationMs: performance.now() - startMs,
  };
  return report;
}

interface Failed {
  stage: StageName;
  failure: StageFailure;
}

const isEmpty = ({ prediction }: SessionItem): boolean => prediction !== null && isEmptyPatch(prediction.patch);

function gradeOf(
  { grade: graded, task, session }: Work,
  failed: Failed | undefined,
): Pick<InstanceReport, "verdict" | "reason" | "failToPass" | "passToPass" | "flakyTests"> {
  if (graded !== undefined) return graded;
  const { prediction } = session.item;
  const none = { expected: task, attempts: [], quarantine: session.services.quarantine };
  const result = grade({ ...none, prediction: prediction && { empty: isEmpty(session.item), flagged: [] } });
  if (failed === undefined) return result;
  return { ...result, verdict: verdictOfFailure(failed.stage, failed.failure.blame), reason: failed.failure.message };
}

async function runStage<Result extends StageOutcome>(
  session: Session,
  row: StageRow,
  run: () => Promise<Result>,
): Promise<Result | Failed> {
  try {
    return await session.runStage(row, run);
  } catch (failure) {
    if (!(failure instanceof StageFailure)) throw failure;
    return { stage: row.name, failure };
  }
}

/** What was judged is stored beside the logs, so that they can be read without the file of predictions. */
async function storePrediction({ session }: Work): Promise<Failed | undefined> {
  const { item, services } = session;
  if (item.prediction === null) return undefined;
  const path = join(services.directory, "logs", item.label, "patch.diff");
  const { patch } = item.prediction;
  const store = async () => {
    await writeFile(path, patch ?? "");
    return { status: "ok" } as const;
  };
  const result = await runStage(session, { name: "report", timeoutMs: minuteMs, tries: 1 }, store);
  return "failure" in result ? result : undefined;
}

/** Resolves to the failure that has ended it, if any. Only one session at a time prepares the same task. */
async function runStages(work: Work): Promise<Failed | undefined> {
  const { session } = work;
  let lock: Disposable | undefined;
  try {
    for (let at = 0; at < stages.length;) {
      const stage = stages[at] as Stage;
      if (stage.name === "checkout") lock ??= await session.services.locks.acquire(work.startKey);
      if (stage.name === "apply") lock?.[Symbol.dispose]();
      const row = { ...stage, timeoutMs: stage.timeoutMs(work) };
      const result = await runStage(session, row, () => stage.run(work));
      if ("failure" in result) return result;
      const { again } = result;
      at = again === undefined ? at + 1 : stages.findIndex(({ name }) => name === again);
    }
    return undefined;
  } finally {
    lock?.[Symbol.dispose]();
  }
}

/** Nothing of a session outlives it, whatever happened. */
async function tearDown(work: Work): Promise<void> {
  const { session } = work;
  const remove = async () => {
    await work.repository?.[Symbol.asyncDispose]();
    await session[Symbol.asyncDispose]();
    return { status: "ok" } as const;
  };
  try {
    await session.runStage({ name: "teardown", timeoutMs: minuteMs, tries: 2 }, remove);
  } catch (failure) {
    // Its sandbox carries the labels of the run, by which the next one finds it. The verdict stands.
    if (!(failure instanceof StageFailure)) await session[Symbol.asyncDispose]();
  }
}
