import { z } from "zod";
import { CommandResult } from "./command.ts";

export const Verdict = z.enum([
  "resolved",
  "partial",
  "unresolved",
  "empty_patch",
  "apply_failed",
  "env_invalid",
  "infra_error",
  "timeout",
  "flaky",
  "tampered",
]);
export type Verdict = z.infer<typeof Verdict>;

export const StageName = z.enum([
  "resolve",
  "checkout",
  "env",
  "compat",
  "setup",
  "snapshot",
  "baseline",
  "apply",
  "test",
  "grade",
  "report",
  "teardown",
]);
export type StageName = z.infer<typeof StageName>;

export const TestStatus = z.enum(["passed", "failed", "error", "skipped", "xfailed", "xpassed"]);
export type TestStatus = z.infer<typeof TestStatus>;

export const AppliedFix = z.object({
  id: z.string(),
  layer: z.enum(["interpreter", "env", "shim", "packages", "command", "source"]),
  /** The text that caused it, or `requested` for a fix that a configuration asks for. */
  symptom: z.string(),
  what: z.string(),
  why: z.string(),
  risk: z.enum(["none", "low", "changes-behaviour"]),
  /** Aliases of the shim that a program really used, from its trace; `null` where a fix leaves no trace. */
  used: z.array(z.string()).nullable(),
});
export type AppliedFix = z.infer<typeof AppliedFix>;

export const StageResult = z.object({
  stage: StageName,
  status: z.enum(["ok", "failed", "skipped", "cached"]),
  reason: z.string().optional(),
  startedAt: z.iso.datetime(),
  durationMs: z.number().min(0),
  tries: z.int().min(1).default(1),
  commands: z.array(CommandResult),
});
export type StageResult = z.infer<typeof StageResult>;

/** One test run of one state: the baseline, or the prediction. */
export const AttemptResult = z.object({
  kind: z.enum(["baseline", "prediction"]),
  seed: z.int().nullable(),
  command: CommandResult.nullable(),
  parser: z.string(),
  /** The status of each test by its id, without the canary. */
  tests: z.record(z.string(), TestStatus),
  /** `false` when no sign of a finished test run was found in the output. */
  suiteRan: z.boolean(),
  canary: z.enum(["failed", "passed", "missing", "off"]),
});
export type AttemptResult = z.infer<typeof AttemptResult>;

export const TestOutcome = z.object({ success: z.array(z.string()), failure: z.array(z.string()) });

export const InstanceReport = z.object({
  schemaVersion: z.literal(1),
  id: z.string(),
  repo: z.string(),
  model: z.string(),
  /** A digest of the prediction, the recipe and the parser: a rerun skips an instance only if this is equal. */
  key: z.string(),
  verdict: Verdict,
  /** One sentence: what happened, and for a failure of ours, what to do about it. */
  reason: z.string(),
  patchExists: z.boolean(),
  patchApplied: z.boolean(),
  stages: z.array(StageResult),
  attempts: z.array(AttemptResult),
  fixes: z.array(AppliedFix),
  /** Fixes that `suggest` would apply. */
  suggestedFixes: z.array(AppliedFix).default([]),
  failToPass: TestOutcome,
  passToPass: TestOutcome,
  /** Tests with different outcomes between attempts of one state, with the seeds of each outcome. */
  flakyTests: z.array(z.object({ test: z.string(), outcomes: z.record(z.string(), z.array(z.int())) })),
  /** Files of the prediction that could change how tests are collected or reported. */
  flagged: z.array(z.string()),
  startedAt: z.iso.datetime(),
  durationMs: z.number().min(0),
});
export type InstanceReport = z.infer<typeof InstanceReport>;

export const RunReport = z.object({
  schemaVersion: z.literal(1),
  runId: z.string(),
  tool: z.object({ name: z.literal("atoll"), version: z.string() }),
  client: z.string(),
  startedAt: z.iso.datetime(),
  durationMs: z.number().min(0),
  interrupted: z.boolean(),
  counts: z.record(Verdict, z.int()),
  instances: z.array(InstanceReport),
});
export type RunReport = z.infer<typeof RunReport>;
