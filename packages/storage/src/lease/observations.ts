import type { Clock } from "./clock.ts";
import type { Claimant, LeaseDocument } from "./lease-document.ts";
import { silenceMs } from "./lease-timing.ts";

/** Forgetting is safe: a server that is forgotten has to be observed for the whole time again. */
const maxKeys = 10_000;

interface Seen {
  stamp: string;
  sinceMs: number;
}

interface SeenLease {
  owner: Seen | undefined;
  waiter: Seen | undefined;
}

/**
 * Since when this process has seen the same renewal of each lease's owner and waiter, by its own clock. Only this
 * decides whether another server is gone: no time that another server wrote counts.
 */
export class Observations {
  readonly #clock: Clock;
  readonly #seen = new Map<string, SeenLease>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Must be called with every answer of the store, after it has arrived: what the answer says was so at that moment at
   * the latest.
   */
  note(key: string, document: LeaseDocument): void {
    const before = this.#seen.get(key);
    this.#seen.delete(key);
    this.#seen.set(key, {
      owner: this.#since(before?.owner, document.owner),
      waiter: this.#since(before?.waiter, document.waiter),
    });
    const [oldest] = this.#seen.keys();
    if (this.#seen.size > maxKeys && oldest !== undefined) this.#seen.delete(oldest);
  }

  forget(key: string): void {
    this.#seen.delete(key);
  }

  /** Returns for how long this owner or waiter still counts as present without a renewal. 0: it is gone. */
  remainingMs(key: string, who: "owner" | "waiter", claimant: Claimant): number {
    const seen = this.#seen.get(key)?.[who];
    const silentMs = seen?.stamp === stampOf(claimant) ? this.#clock.now() - seen.sinceMs : 0;
    return Math.max(0, silenceMs(claimant.ttlMs) - silentMs);
  }

  #since(before: Seen | undefined, claimant: Claimant | null): Seen | undefined {
    if (claimant === null) return undefined;
    const stamp = stampOf(claimant);
    return before?.stamp === stamp ? before : { stamp, sinceMs: this.#clock.now() };
  }
}

/** The duration is part of it: a longer one has to be waited for in full. */
function stampOf({ session, renewal, ttlMs }: Claimant): string {
  return `${session} ${renewal} ${ttlMs}`;
}
