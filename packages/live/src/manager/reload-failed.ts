import { messageOf } from "@atoll/host";
import type { Diagnostic } from "../compiler/artifact.ts";
import type { SourcePlaces } from "../compiler/source-places.ts";
import type { LiveEventBody, ReloadPhase } from "../events/live-event.ts";
import { RequestFailed } from "../wire/connection.ts";

/** A reload that changed nothing: the app goes on with the code and the states of before. */
export class ReloadFailed extends Error {
  override readonly name = "ReloadFailed";
  readonly phase: ReloadPhase;
  readonly diagnostics: readonly Diagnostic[];

  constructor(phase: ReloadPhase, message: string, diagnostics: readonly Diagnostic[], cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
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
