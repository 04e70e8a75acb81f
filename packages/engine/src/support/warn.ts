/** Logs an error of background work, which has no caller to reject to. */
export function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error), { type: "AtollCleanupError" });
}
