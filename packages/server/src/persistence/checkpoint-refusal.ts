import { SandboxError, type SandboxId } from "@atoll/protocol";

/** Says of a stored checkpoint which part of it is wrong, and how. */
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
      suggestion: "Go back to another checkpoint of this sandbox.",
      details: { sandboxId, checkpoint: n, part, because },
      cause,
    },
  );
}

/** For a rollback: a copy begins with one that has nothing of its commands. */
export function nothingKept(sandboxId: SandboxId, checkpoint: number): SandboxError {
  return new SandboxError(
    "unrestorable",
    `Cannot roll back sandbox ${sandboxId} to checkpoint ${checkpoint}: its commands of that time were not kept`,
    {
      suggestion: "Roll back to one that was made by pausing this very sandbox.",
      details: { sandboxId, checkpoint },
    },
  );
}
