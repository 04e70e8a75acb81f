import { SandboxError, type SandboxId } from "@atoll/protocol";

/** For whoever has a place in a log that is not there any more: going on from it would mix two pasts. */
export function rolledBack(sandboxId: SandboxId): SandboxError {
  return new SandboxError(
    "rolled_back",
    `Cannot go on: sandbox ${sandboxId} was rolled back to an earlier checkpoint`,
    {
      suggestion: "Look at its commands anew, and read from the beginning: they are those of that time.",
      details: { sandboxId },
    },
  );
}
