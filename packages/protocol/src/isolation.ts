import { z } from "zod";

/** Why a sandbox is isolated. */
export const ThreatKind = z.enum(["protocol_violation", "seccomp_kill", "limit_violations", "operator"]);
export type ThreatKind = z.infer<typeof ThreatKind>;

/**
 * How an isolated sandbox is kept: saved in a checkpoint, frozen in memory, or ended already, with its files. `running`
 * is between the decision and its effect, or says that neither could be done.
 */
export const IsolatedAs = z.enum(["checkpoint", "frozen", "ended", "running"]);

/** Set while a sandbox is isolated: it reaches nothing, runs nothing, and only an operator can change that. */
export const Isolated = z.strictObject({
  sinceMs: z.int(),
  kind: ThreatKind,
  reason: z.string(),
  heldAs: IsolatedAs,
});
export type Isolated = z.infer<typeof Isolated>;

export const IsolateSandbox = z.strictObject({
  reason: z.string().min(1).max(500).default("an operator asked for it"),
});
