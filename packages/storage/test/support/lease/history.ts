import type { ObjectStore } from "../../../src/index.ts";
import { parseLeaseDocument, type Claimant, type LeaseDocument } from "../../../src/lease/lease-document.ts";
import type { Timeline } from "./timeline.ts";

/** When a session last renewed its claim. */
interface Sign {
  atMs: number;
  renewal: number;
}

/** Every version that was ever in the store, in order, and the rules from each to the next. */
export class History {
  readonly #timeline: Timeline;
  readonly #signs = new Map<string, Sign>();
  readonly #failures: string[] = [];
  /** Claims that were replaced too early. */
  readonly #earlyReplacements: string[] = [];
  #lease: LeaseDocument | undefined;
  #fencedEpoch = 0;
  takeovers = 0;
  handovers = 0;
  replacedWaiters = 0;

  constructor(timeline: Timeline) {
    this.#timeline = timeline;
  }

  /** Wraps the store to record every write that takes effect. */
  recording(store: ObjectStore): ObjectStore {
    const put = store.put.bind(store);
    store.put = async (key, data, options) => {
      const info = await put(key, data, options);
      if (key.endsWith("lease.json")) this.#onLease(parseLeaseDocument(data, key));
      else this.#onFenced(data);
      return info;
    };
    return store;
  }

  assertSound(hasSoundClocks: boolean): void {
    const failures = hasSoundClocks ? [...this.#failures, ...this.#earlyReplacements] : this.#failures;
    if (failures.length > 0) throw new Error(failures.join("\n"));
  }

  #onFenced(data: Uint8Array): void {
    const { epoch } = JSON.parse(Buffer.from(data).toString("utf8"));
    if (epoch < this.#fencedEpoch) this.#fail(`a write of epoch ${epoch} came after one of epoch ${this.#fencedEpoch}`);
    this.#fencedEpoch = epoch;
  }

  #onLease(next: LeaseDocument): void {
    const before = this.#lease;
    this.#lease = next;
    const isNewOwner = next.owner !== null && next.owner.session !== before?.owner?.session;
    const isNewEpoch = isNewOwner || next.epoch !== before?.epoch;
    if (isNewEpoch && next.epoch !== (before?.epoch ?? 0) + 1)
      this.#fail(`epoch ${before?.epoch} became ${next.epoch}`);
    if (isNewEpoch && next.owner === null) this.#fail("an epoch began without an owner");
    if (before?.owner && next.owner && isNewOwner) {
      this.takeovers += 1;
      // A server may take over at once what its own last process held. Another check finds two owners at the same time.
      if (before.owner.id !== next.owner.id) this.#assertSilent("owner", before.owner);
    }
    if (before?.waiter && before.waiter.session !== next.waiter?.session)
      this.#onWaiterGone(before.waiter, next, isNewEpoch);
    for (const claimant of [next.owner, next.waiter]) if (claimant) this.#sign(claimant);
  }

  #onWaiterGone(waiter: Claimant, next: LeaseDocument, isNewEpoch: boolean): void {
    if (next.owner?.session === waiter.session) {
      this.handovers += 1;
      return;
    }
    // A waiter that leaves puts no other in its place; another server may replace only a waiter that is gone.
    if (next.waiter === null && !isNewEpoch) return;
    this.replacedWaiters += 1;
    this.#assertSilent("waiter", waiter);
  }

  #assertSilent(who: string, { session, ttlMs, id }: Claimant): void {
    const silentMs = this.#timeline.nowMs - (this.#signs.get(session)?.atMs ?? 0);
    if (silentMs < ttlMs)
      this.#earlyReplacements.push(`${who} ${id} was replaced ${silentMs} ms after its last renewal`);
  }

  #sign({ session, renewal }: Claimant): void {
    const known = this.#signs.get(session);
    if (known === undefined || known.renewal < renewal) {
      this.#signs.set(session, { atMs: this.#timeline.nowMs, renewal });
    }
  }

  #fail(what: string): void {
    this.#failures.push(`${what} (at ${this.#timeline.nowMs} ms)`);
  }
}
