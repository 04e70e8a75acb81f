import type { PhaseTimes } from "./checkpoint.ts";
import type { SandboxId } from "./ids.ts";
import type { GuestCondition, SandboxState } from "./lifecycle.ts";
import type { LimitName } from "./limits.ts";
import type { EndedProcess, EndReason } from "./sandbox.ts";

/** What happened to a sandbox, in the order in which it happened. */
export type SandboxEventMessage = { sandboxId: SandboxId; atMs: number } & (
  | {
      type: "state";
      from: SandboxState | null;
      to: SandboxState;
      reason?: EndReason;
      phases?: PhaseTimes;
      /** The processes that were ended on the way, because they could not be saved. */
      ended?: EndedProcess[];
    }
  /** Its guest answers no more, or again. */
  | { type: "guest"; guest: GuestCondition }
  | { type: "limit.near"; limit: LimitName; used: number; allowed: number }
  | { type: "limit.hit"; limit: LimitName; used: number; allowed: number; consequence: string }
  | { type: "limit.eased"; limit: LimitName; used: number; allowed: number }
);
