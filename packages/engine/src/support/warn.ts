/** Background work has nobody to reject to; a person reads it in the log. */
export function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error), { type: "AtollCleanupError" });
}
