import type { Diagnostic } from "../compiler/artifact.ts";
import type { ReloadPhase } from "../events/live-event.ts";

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
