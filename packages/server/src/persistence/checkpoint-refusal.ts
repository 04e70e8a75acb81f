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
