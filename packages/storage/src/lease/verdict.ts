import type { Claimant, LeaseDocument } from "./lease-document.ts";
import type { LeaseOrigin } from "./lease.ts";

/** What a server may do about a lease in its present state. */
export type Verdict =
  | { may: "take"; origin: LeaseOrigin }
  /** The owner is present: register as the waiter and wait for it. */
  | { may: "wait"; owner: Claimant }
  /** Another server waits already. */
  | { may: "leave"; waiter: Claimant };

export interface Judge {
  session: string;
  /** Returns 0 when the claimant counts as gone. */
  remainingMs(who: "owner" | "waiter", claimant: Claimant): number;
  /** Whether this owner is known to be dead, however recent its renewal is. */
  isPredecessor(owner: Claimant): boolean;
}

export function judge({ owner, waiter }: LeaseDocument, by: Judge): Verdict {
  // What runs here has to be saved here, also on behalf of the waiter, which stays in the document.
  if (owner !== null && by.isPredecessor(owner)) return { may: "take", origin: "reclaimed" };
  if (waiter !== null && !isMineOrGone("waiter", waiter, by)) return { may: "leave", waiter };
  if (owner === null) return { may: "take", origin: "released" };
  if (isMineOrGone("owner", owner, by)) return { may: "take", origin: "expired" };
  return { may: "wait", owner };
}

/** Returns who still waits once the server with this session has the lease. */
export function waiterAfter({ waiter }: LeaseDocument, by: Judge): Claimant | null {
  return waiter === null || isMineOrGone("waiter", waiter, by) ? null : waiter;
}

function isMineOrGone(who: "owner" | "waiter", claimant: Claimant, by: Judge): boolean {
  return claimant.session === by.session || by.remainingMs(who, claimant) === 0;
}
