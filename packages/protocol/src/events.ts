import type { PhaseTimes } from "./checkpoint.ts";
import type { SandboxId } from "./ids.ts";
import type { SandboxState } from "./lifecycle.ts";
import type { LimitName } from "./limits.ts";
import type { EndReason } from "./sandbox.ts";

/** What happened to a sandbox, in the order in which it happened. */
export type SandboxEventMessage = { sandboxId: SandboxId; atMs: number } & (
  | { type: "state"; from: SandboxState | null; to: SandboxState; reason?: EndReason; phases?: PhaseTimes }
  | { type: "limit.near"; limit: LimitName; used: number; allowed: number }
  | { type: "limit.hit"; limit: LimitName; used: number; allowed: number; consequence: string }
  | { type: "limit.eased"; limit: LimitName; used: number; allowed: number }
);
