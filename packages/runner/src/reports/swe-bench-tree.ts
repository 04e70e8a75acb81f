import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hasErrno } from "@atoll/host";
import { describeEnd } from "../models/command.ts";
import type { InstanceReport, Verdict } from "../models/report.ts";
import { formatMs } from "./plain-text.ts";
import type { StoredItem, StoredRun } from "./stored-run.ts";
import { gradedAttempts } from "./test-rows.ts";

/** What SWE-bench calls completed: there is a report of the tests. Everything else is empty or an error to it. */
const completed: ReadonlySet<Verdict> = new Set(["resolved", "partial", "unresolved", "flaky", "tampered"]);

/** A part of a path, whatever a prediction calls its model and a data set its instance. */
const fileName = (text: string): string =>
  text
    .replaceAll("/", "__")
    .replaceAll(/[^A-Za-z0-9._@+-]/g, "_")
    .replace(/^\.+/, "_")
    .slice(0, 200) || "_";

const modelOf = ({ model }: InstanceReport): string => model || "none";

/** The `report.json` of one instance, as SWE-bench writes it. */
function sweBenchReport(report: InstanceReport): Record<string, unknown> {
  return {
    [report.id]: {
      patch_is_None: !report.patchExists,
      patch_exists: report.patchExists,
      patch_successfully_applied: report.patchApplied,
      resolved: report.verdict === "resolved",
      infra_failure: false,
      tests_status: {
        FAIL_TO_PASS: report.failToPass,
        PASS_TO_PASS: report.passToPass,
        FAIL_TO_FAIL: { success: [], failure: [] },
        PASS_TO_FAIL: { success: [], failure: [] },
      },
    },
  };
}

/** The summary of a run with one model, version 2 of what SWE-bench writes. */
function sweBenchSummary(reports: readonly InstanceReport[], unfinished: readonly string[]): object {
  const ids = (...verdicts: Verdict[]) =>
    reports
      .filter(({ verdict }) => verdicts.includes(verdict))
      .map(({ id }) => id)
      .toSorted();
  const all = reports.map(({ id }) => id).toSorted();
  const resolved = ids("resolved");
  const unresolved = ids("partial", "unresolved", "flaky", "tampered");
  const empty = ids("empty_patch");
  const errors = ids("apply_failed", "env_invalid", "infra_error", "timeout");
  const infrastructure = ids("infra_error", "env_invalid");
  const ambiguous = ids("flaky", "timeout");
  const reasons = reports
    .filter(({ id }) => infrastructure.includes(id) || ambiguous.includes(id))
    .map(({ id, verdict, reason }) => [id, `${verdict}: ${reason}`] as const);
  return {
    total_instances: all.length + unfinished.length,
    submitted_instances: all.length + unfinished.length,
    completed_instances: resolved.length + unresolved.length,
    resolved_instances: resolved.length,
    unresolved_instances: unresolved.length,
    infra_failure_instances: infrastructure.length,
    ambiguous_failure_instances: ambiguous.length,
    empty_patch_instances: empty.length,
    error_instances: errors.length,
    completed_ids: [...resolved, ...unresolved].toSorted(),
    incomplete_ids: [...unfinished].toSorted(),
    empty_patch_ids: empty,
    submitted_ids: [...all, ...unfinished].toSorted(),
    resolved_ids: resolved,
    unresolved_ids: unresolved,
    infra_failure_ids: infrastructure,
    ambiguous_failure_ids: ambiguous,
    failure_reasons: Object.fromEntries(reasons.toSorted(([a], [b]) => (a < b ? -1 : 1))),
    error_ids: errors,
    schema_version: 2,
  };
}

/**
 * Writes the tree that SWE-bench leaves: `logs/run_evaluation/<run>/<model>/<instance>/` with the report, the output of
 * the tests and the patch, and one summary per model. Returns the paths of the summaries.
 */
export async function writeSweBenchTree(run: StoredRun, target: string): Promise<string[]> {
  const byModel = new Map<string, StoredItem[]>();
  for (const item of run.items) {
    const model = modelOf(item.report);
    byModel.set(model, [...(byModel.get(model) ?? []), item]);
  }
  const runName = fileName(run.report.runId);
  const summaries: string[] = [];
  for (const [model, items] of byModel) {
    for (const item of items) {
      const folder = join("logs", "run_evaluation", runName, fileName(model), fileName(item.report.id));
      await writeInstance(run, item, join(target, folder));
    }
    const path = join(target, `${fileName(model)}.${runName}.json`);
    // A run with several models does not say whose item it was that did not end.
    const unfinished = byModel.size === 1 ? run.unfinished : [];
    const summary = sweBenchSummary(
      items.map(({ report }) => report),
      unfinished,
    );
    await writeFile(path, `${JSON.stringify(summary, undefined, 4)}\n`);
    summaries.push(path);
  }
  return summaries;
}

async function writeInstance(run: StoredRun, { label, report }: StoredItem, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const command = gradedAttempts(report).at(-1)?.command ?? undefined;
  if (completed.has(report.verdict)) {
    await writeFile(join(folder, "report.json"), `${JSON.stringify(sweBenchReport(report), undefined, 4)}\n`);
  }
  if (command !== undefined) {
    // The file with both streams in the order of arrival is there unless one of them was empty.
    const both = command.stdout.path.replace(/\.stdout$/, ".log");
    const only = command.stdout.bytes === 0 ? command.stderr.path : command.stdout.path;
    const output = join(folder, "test_output.txt");
    if (!(await copy(join(run.directory, both), output))) await copy(join(run.directory, only), output);
    const quoted = command.argv.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ");
    const script = `#!/bin/bash\ncd '${command.cwd.replaceAll("'", `'\\''`)}'\n${quoted}\n`;
    await writeFile(join(folder, "eval.sh"), script);
  }
  await copy(join(run.directory, "logs", label, "patch.diff"), join(folder, "patch.diff"));
  await writeFile(join(folder, "run_instance.log"), stageLog(report));
}

async function copy(from: string, to: string): Promise<boolean> {
  try {
    await mkdir(dirname(to), { recursive: true });
    await copyFile(from, to);
    return true;
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return false;
    throw error;
  }
}

/** What happened to an instance, a line per stage and command. */
function stageLog(report: InstanceReport): string {
  const lines = report.stages.flatMap(({ stage, status, startedAt, durationMs, reason, commands }) => [
    `${startedAt} ${stage}: ${status} in ${formatMs(durationMs)}${reason === undefined ? "" : `: ${reason}`}`,
    ...commands.map(({ argv, end, durationMs }) => {
      const shown = argv.join(" ").replaceAll(/\s+/g, " ").slice(0, 500);
      return `  ${describeEnd(end)} in ${formatMs(durationMs)}: ${shown}`;
    }),
  ]);
  return [...lines, `${report.verdict}: ${report.reason}`, ""].join("\n");
}
