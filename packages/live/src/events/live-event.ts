import type { ErrorCode } from "@atoll/protocol";
import type { HardLimitAction, LimitName } from "@atoll/protocol";
import type { Diagnostic } from "../compiler/artifact.ts";
import type { SourcePlace } from "../compiler/source-places.ts";
import type { AppState } from "../manager/app-options.ts";
import type { ErrorKind, Recovery } from "../recovery/classify.ts";

/** Everything that happens to apps, in the order in which it happens. Durations are in milliseconds. */
export type LiveEvent = { at: string; app: string } & LiveEventBody;

export type LiveEventBody =
  | { type: "app.state"; state: AppState; from: AppState; reason?: string }
  | { type: "app.destroy" }
  | { type: "compile.start"; files: number }
  | {
      type: "compile.end";
      ok: boolean;
      compiled: string[];
      cached: number;
      durationMs: number;
      diagnostics: Diagnostic[];
    }
  | { type: "scan.end"; ok: boolean; modules: string[]; durationMs: number; diagnostics: readonly Diagnostic[] }
  | { type: "types.end"; ok: boolean; generation: number; durationMs: number; diagnostics: readonly Diagnostic[] }
  | { type: "reload.start"; modules: string[]; cause: ReloadCause }
  | { type: "reload.prepare"; generation: number; modules: string[]; durationMs: number }
  | { type: "reload.suspend"; generation: number; services: string[]; durationMs: number }
  | { type: "reload.commit"; generation: number; migrated: string[]; durationMs: number }
  | { type: "reload.end"; generation: number; modules: string[]; services: string[]; durationMs: number }
  | {
      type: "reload.failed";
      phase: ReloadPhase;
      code: string;
      reason: string;
      diagnostics: readonly Diagnostic[];
      /** Where new code threw while it was evaluated or migrated a state. */
      place?: SourcePlace;
    }
  | { type: "reload.settle"; generation: number }
  | { type: "rollback"; from: number; to: number; reason: string; durationMs: number }
  | { type: "service.crash"; service: string; reason: string; stack?: string; place?: SourcePlace; restarts: number }
  | { type: "service.start"; service: string }
  | { type: "service.stop"; service: string; reason: string }
  | { type: "process.end"; reason: string; willRestart: boolean }
  | { type: "recovery"; kind: ErrorKind; recovery: Recovery; code: ErrorCode; reason: string; attempt: number }
  | { type: "log"; level: "log" | "warn" | "error"; text: string; service?: string }
  | { type: "watch.change"; files: string[] }
  /** The monitor found a limit near, or reached. */
  | { type: "limit.near" | "limit.hit"; limit: LimitName; used: number; allowed: number }
  /** What was done about it, as the profile of the app demands, or why it could not be done. */
  | { type: "limit.enforced"; limit: LimitName; action: HardLimitAction; result: "done" | "failed"; because: string }
  /** The app tried what its profile does not allow, and was refused. */
  | { type: "security.denied"; what: string; reason: string };

export type ReloadCause = "request" | "watch" | "rollback";
export type ReloadPhase = "compile" | "scan" | "prepare" | "suspend" | "commit";
