import { SandboxError, type SandboxId } from "@atoll/protocol";

/** Returns the error about a stored checkpoint that says which part of it is wrong, and how. */
export function unrestorable(
  { sandboxId, n }: { sandboxId: SandboxId; n: number },
  part: string,
  because: string,
  cause?: unknown,
): SandboxError {
  return new SandboxError(
    "unrestorable",
    `Cannot use stored checkpoint ${n} of sandbox ${sandboxId}: ${part}: ${because}`,
    {
      suggestion: "Roll back to another checkpoint of this sandbox.",
      details: { sandboxId, checkpoint: n, part, because },
      cause,
    },
  );
}

/** Returns the error for a rollback to a checkpoint without commands: the first one of a copy has none. */
export function commandsNotKept(sandboxId: SandboxId, checkpoint: number): SandboxError {
  return new SandboxError(
    "unrestorable",
    `Cannot roll back sandbox ${sandboxId} to checkpoint ${checkpoint}: its commands of that time were not kept`,
    {
      suggestion: "Roll back to one that was made by pausing this sandbox itself.",
      details: { sandboxId, checkpoint },
    },
  );
}
