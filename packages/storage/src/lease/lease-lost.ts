import { SandboxError } from "@atoll/protocol";
import type { LeaseParty } from "./lease-document.ts";

export type LeaseLoss =
  /** No renewal succeeded in time. Nobody else may have it yet, and anybody may have it soon. */
  | { reason: "expired" }
  /** Somebody else has it, or had it: `owner` is who was found. */
  | { reason: "stolen"; epoch: number; owner: LeaseParty | undefined }
  /** Its document is gone, and with it the memory of its epoch. */
  | { reason: "removed" }
  /** It was given back by its owner. */
  | { reason: "released" }
  /** Its owner has stopped renewing it, and leaves it to its successor. */
  | { reason: "abandoned" };

const sentences = {
  expired: "it could not be renewed in time",
  stolen: "another server has taken it",
  removed: "its document was removed from the store",
  released: "it was given back",
  abandoned: "it was left to the next process of this server",
} as const satisfies Record<LeaseLoss["reason"], string>;

export function leaseLost(key: string, epoch: number, loss: LeaseLoss, cause?: unknown): SandboxError {
  return new SandboxError("lease_lost", `Cannot act under the lease ${key}: ${sentences[loss.reason]}`, {
    suggestion: "Stop the sandbox here at once; ask again to be led to the server that has it.",
    details: { key, epoch, ...loss },
    ...(cause === undefined ? {} : { cause }),
  });
}
