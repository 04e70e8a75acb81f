import type { PhaseTimes } from "./checkpoint.ts";
import type { SandboxId } from "./ids.ts";
import type { GuestCondition, SandboxState } from "./lifecycle.ts";
import type { LimitName } from "./limits.ts";
import type { EndedProcess, EndReason } from "./sandbox.ts";

/** An event of a sandbox; events are emitted in the order in which they happened. */
export type SandboxEventMessage = { sandboxId: SandboxId; atMs: number } & (
  | {
      type: "state";
      from: SandboxState | null;
      to: SandboxState;
      reason?: EndReason;
      phases?: PhaseTimes;
      /** The processes that were ended because they could not be saved. */
      ended?: EndedProcess[];
    }
  /** The guest stopped answering, or answers again. */
  | { type: "guest"; guest: GuestCondition }
  | { type: "limit.near"; limit: LimitName; used: number; allowed: number }
  | { type: "limit.hit"; limit: LimitName; used: number; allowed: number; consequence: string }
  | { type: "limit.eased"; limit: LimitName; used: number; allowed: number }
);
