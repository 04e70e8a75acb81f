import { messageOf } from "@atoll/host";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { Diagnostic } from "../compiler/artifact.ts";
import type { SourcePlaces } from "../compiler/source-places.ts";
import type { LiveEventBody, ReloadPhase } from "../events/live-event.ts";
import { RequestFailed } from "../wire/connection.ts";

/** A reload that changed nothing: the app goes on with the code and the states of before. */
export class ReloadFailed extends SandboxError {
  readonly phase: ReloadPhase;
  readonly diagnostics: readonly Diagnostic[];

  constructor(phase: ReloadPhase, message: string, diagnostics: readonly Diagnostic[], cause?: unknown) {
    const failure = cause instanceof RequestFailed ? { failure: cause.error.code } : {};
    const isCompile = phase === "compile" || phase === "scan";
    const isDenied = isSandboxError(cause, "permission_denied");
    super(isDenied ? "permission_denied" : isCompile ? "compile_failed" : "reload_failed", message, {
      suggestion:
        (isDenied ? cause.suggestion : undefined) ??
        (isCompile ? "Correct the code, and reload." : "Correct the module or the migration, and reload."),
      details: { phase, diagnostics, ...failure, ...(phase === "scan" ? { kind: "security" } : {}) },
      cause,
    });
    this.phase = phase;
    this.diagnostics = diagnostics;
  }
}

/** What is emitted for a reload that failed. */
export function reloadFailure(phase: ReloadPhase, error: unknown, places: SourcePlaces): LiveEventBody {
  const code = error instanceof RequestFailed ? error.error.code : phase === "compile" ? "compile_failed" : "failed";
  const diagnostics = error instanceof ReloadFailed ? error.diagnostics : [];
  const place = error instanceof RequestFailed ? places.first(error.error.stack) : undefined;
  const at = place === undefined ? {} : { place };
  return { type: "reload.failed", phase, code, reason: messageOf(error), diagnostics, ...at };
}
