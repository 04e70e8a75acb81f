import { SandboxError } from "@atoll/protocol";
import { decide, type GuardRequest } from "./decide.ts";

/** Throws `permission_denied` if the operation is refused. `asked` completes "Cannot ". */
export function assertAllowed(request: GuardRequest, asked: string): void {
  const decision = decide(request);
  if (decision.allowed) return;
  const { rule, why, ceiling, suggestion, details } = decision;
  throw new SandboxError("permission_denied", `Cannot ${asked}: ${why}`, {
    suggestion,
    details: { rule, ceiling, ...details },
  });
}
