import type { CommandEnd, CommandSpec } from "../models/command.ts";
import type { AppliedFix, InstanceReport, StageName, StageResult } from "../models/report.ts";

/** What happened in a run, one line of `events.ndjson` each. The state of a run is a fold over them. */
export type RunEvent = { seq: number; at: string } & RunEventBody;

export type RunEventBody =
  | { type: "run.start"; runId: string; pid: number; bootId: string; instances: string[]; options: object }
  | { type: "instance.start"; instance: string; key: string; sandbox?: string }
  | { type: "stage.start"; instance: string; stage: StageName }
  | {
      type: "stage.end";
      instance: string;
      stage: StageName;
      status: StageResult["status"];
      durationMs: number;
      reason?: string;
    }
  | { type: "command.start"; instance: string; stage: StageName; argv: CommandSpec["argv"] }
  | { type: "command.output"; instance: string; stage: StageName; line: string }
  | { type: "command.end"; instance: string; stage: StageName; end: CommandEnd; durationMs: number }
  | { type: "sandbox.start"; instance: string; id: string; snapshot?: string }
  | { type: "sandbox.remove"; instance: string; id: string }
  | { type: "fix.apply"; instance: string; fix: AppliedFix }
  | {
      type: "attempt.end";
      instance: string;
      kind: "baseline" | "prediction";
      seed: number | null;
      passed: number;
      failed: number;
    }
  | { type: "instance.end"; instance: string; key: string; report: InstanceReport }
  | { type: "run.drain" }
  | { type: "run.end"; interrupted: boolean };

/** `command.output` is for people who watch; it is passed to listeners and is not written to the journal. */
export type EmitEvent = (event: RunEventBody) => void;
