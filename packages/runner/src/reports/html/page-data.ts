import { type CommandResult, describeEnd, type OutputFile, succeeded } from "../../models/command.ts";
import { type InstanceReport, type StageResult, Verdict } from "../../models/report.ts";
import { stripAnsi } from "../../parsers/parser.ts";
import { plain } from "../plain-text.ts";
import type { StoredRun } from "../stored-run.ts";

/** All logs together; a browser opens and searches this without a pause. The files of the run have the rest. */
const maxLogLength = 16 * 1024 * 1024;

/** Each instance has its share of that, but never less than this. */
const minShare = 16 * 1024;

/** The end of an output that is shown when there is no room for more of it. */
const shortTail = 2 * 1024;

/** What the page works with. The script of the page has the same type in its comments. */
export function pageData({ report, unfinished }: StoredRun): object {
  const share = Math.max(minShare, Math.floor(maxLogLength / Math.max(1, report.instances.length)));
  return {
    run: {
      id: report.runId,
      client: report.client,
      version: report.tool.version,
      startedAt: report.startedAt,
      ms: report.durationMs,
      interrupted: report.interrupted,
    },
    verdicts: Verdict.options,
    unfinished,
    instances: report.instances.map((instance) => instanceData(instance, share)),
  };
}

function instanceData(instance: InstanceReport, share: number) {
  const { failToPass, passToPass, flakyTests, fixes, suggestedFixes, flagged } = instance;
  const budget = { left: share };
  // The stages at the end say most about a verdict, so they get their room first.
  const stages = instance.stages
    .toReversed()
    .map((stage) => stageData(stage, budget))
    .toReversed();
  return {
    id: plain(instance.id),
    repo: plain(instance.repo),
    model: plain(instance.model),
    verdict: instance.verdict,
    reason: plain(instance.reason),
    at: Date.parse(instance.startedAt),
    ms: instance.durationMs,
    fixed: failToPass.success.map(plain),
    notFixed: failToPass.failure.map(plain),
    kept: passToPass.success.map(plain),
    broken: passToPass.failure.map(plain),
    flaky: flakyTests.map(({ test, outcomes }) => ({ test: plain(test), outcomes })),
    fixes: [
      ...fixes.map((fix) => ({ ...fix, isApplied: true })),
      ...suggestedFixes.map((fix) => ({ ...fix, isApplied: false })),
    ].map(({ id, symptom, what, why, isApplied }) => ({ id, symptom: plain(symptom), what, why, isApplied })),
    flagged: flagged.map(plain),
    attempts: instance.attempts.map(({ kind, seed, tests, canary, suiteRan, command }) => {
      const statuses = Object.values(tests);
      return {
        kind,
        seed,
        canary,
        suiteRan,
        passed: statuses.filter((status) => status === "passed" || status === "xfailed").length,
        failed: statuses.filter((status) => status === "failed" || status === "error").length,
        total: statuses.length,
        end: command === null ? "" : describeEnd(command.end),
        ms: command?.durationMs ?? 0,
      };
    }),
    stages,
  };
}

function stageData({ stage, status, reason, startedAt, durationMs, tries, commands }: StageResult, budget: Budget) {
  const isRelevant = status === "failed" || stage === "test" || stage === "baseline" || stage === "apply";
  return {
    name: stage,
    status,
    reason: plain(reason ?? ""),
    at: Date.parse(startedAt),
    ms: durationMs,
    tries,
    commands: commands.map((command) => commandData(command, isRelevant, budget)),
  };
}

interface Budget {
  left: number;
}

function commandData(command: CommandResult, isRelevant: boolean, budget: Budget) {
  const isGood = succeeded(command.end);
  const full = isRelevant || !isGood;
  return {
    argv: command.argv.map((word) => plain(word.length > 4096 ? `${word.slice(0, 4096)}…` : word)),
    cwd: command.cwd,
    user: command.user,
    end: describeEnd(command.end),
    isGood,
    ms: command.durationMs,
    outputs: (
      [
        ["stdout", command.stdout],
        ["stderr", command.stderr],
      ] as const
    )
      .filter(([, output]) => output.bytes > 0)
      .map(([name, output]) => outputData(name, output, full, budget)),
  };
}

function outputData(name: string, output: OutputFile, full: boolean, budget: Budget) {
  const { path, bytes, dropped, head, tail } = output;
  const all = head.length + tail.length;
  const fits = all <= shortTail || (full && all <= budget.left);
  const shownHead = fits ? head : "";
  const shownTail = fits ? tail : (tail || head).slice(-shortTail);
  budget.left -= shownHead.length + shownTail.length;
  const shownBytes = Buffer.byteLength(shownHead) + Buffer.byteLength(shownTail);
  return {
    name,
    path,
    bytes,
    dropped,
    hidden: Math.max(0, bytes - shownBytes),
    head: clean(shownHead),
    tail: clean(shownTail),
  };
}

const clean = (text: string): string => plain(stripAnsi(text).replaceAll("\r\n", "\n"));
