import { SandboxError } from "@atoll/protocol";
import type { LeaseParty } from "./lease-document.ts";

export type LeaseLoss =
  /** No renewal succeeded in time. No other server may have the lease yet, but one may soon. */
  | { reason: "expired" }
  /** Another server has the lease, or had it: `owner` is the server in the document. */
  | { reason: "stolen"; epoch: number; owner: LeaseParty | undefined }
  /** The document is gone, and with it the epoch. */
  | { reason: "removed" }
  /** The owner released the lease. */
  | { reason: "released" }
  /** The owner has stopped renewing the lease, and leaves it to its successor. */
  | { reason: "abandoned" };

const sentences = {
  expired: "it could not be renewed in time",
  stolen: "another server has taken it",
  removed: "its document was removed from the store",
  released: "it was released",
  abandoned: "it was left to the next process of this server",
} as const satisfies Record<LeaseLoss["reason"], string>;

export function leaseLost(key: string, epoch: number, loss: LeaseLoss, cause?: unknown): SandboxError {
  return new SandboxError("lease_lost", `Cannot act under the lease ${key}: ${sentences[loss.reason]}`, {
    suggestion: "Stop the sandbox here at once. A new request reaches the server that has it.",
    details: { key, epoch, ...loss },
    ...(cause === undefined ? {} : { cause }),
  });
}
