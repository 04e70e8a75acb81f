import { SandboxError, type SandboxId } from "@atoll/protocol";

/**
 * Returns the error for a client that has a position in a log from before a rollback: continuing from it would mix two
 * histories.
 */
export function rolledBack(sandboxId: SandboxId): SandboxError {
  return new SandboxError(
    "rolled_back",
    `Cannot go on: sandbox ${sandboxId} was rolled back to an earlier checkpoint`,
    {
      suggestion: "List its commands again, and read them from the beginning: they are those of the checkpoint.",
      details: { sandboxId },
    },
  );
}
