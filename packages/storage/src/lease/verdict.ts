import type { Claimant, LeaseDocument } from "./lease-document.ts";
import type { LeaseOrigin } from "./lease.ts";

/** What somebody may do about a lease as it stands. */
export type Verdict =
  | { may: "take"; origin: LeaseOrigin }
  /** Its owner is there: wait for him, as the one who waits. */
  | { may: "wait"; owner: Claimant }
  /** Somebody else waits already. */
  | { may: "leave"; waiter: Claimant };

export interface Judge {
  session: string;
  /** 0 when he can be held to be gone. */
  remainingMs(who: "owner" | "waiter", claimant: Claimant): number;
  /** Whether this owner is known to be dead, however fresh his renewal is. */
  isPredecessor(owner: Claimant): boolean;
}

export function judge({ owner, waiter }: LeaseDocument, by: Judge): Verdict {
  // What runs here has to be saved here, also for him who waits: he stays in the document.
  if (owner !== null && by.isPredecessor(owner)) return { may: "take", origin: "reclaimed" };
  if (waiter !== null && !isMineOrGone("waiter", waiter, by)) return { may: "leave", waiter };
  if (owner === null) return { may: "take", origin: "released" };
  if (isMineOrGone("owner", owner, by)) return { may: "take", origin: "expired" };
  return { may: "wait", owner };
}

/** Who waits on once somebody with this session has the lease. */
export function waiterAfter({ waiter }: LeaseDocument, by: Judge): Claimant | null {
  return waiter === null || isMineOrGone("waiter", waiter, by) ? null : waiter;
}

function isMineOrGone(who: "owner" | "waiter", claimant: Claimant, by: Judge): boolean {
  return claimant.session === by.session || by.remainingMs(who, claimant) === 0;
}
