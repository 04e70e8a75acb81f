import type { CallOptions, ObjectStore } from "../object-store.ts";
import { Acquisition, isUnderLock, type HandoverProgress } from "./acquisition.ts";
import { systemClock, type Clock } from "./clock.ts";
import { partyOf, type Claimant, type LeaseParty } from "./lease-document.ts";
import { LeaseFile } from "./lease-file.ts";
import { completeTiming, type LeaseTiming } from "./lease-timing.ts";
import type { Lease, LeaseCallbacks } from "./lease.ts";
import { Observations } from "./observations.ts";

export interface LeasesOptions {
  store: ObjectStore;
  /** This server, as other servers see it. */
  self: LeaseParty;
  timing?: Partial<LeaseTiming>;
  clock?: Clock;
  /**
   * Whether the process that wrote this owner is known to be dead, because this process holds the lock of its data
   * directory. Its leases are taken over at once.
   */
  isPredecessor?: (owner: LeaseParty) => boolean;
  /**
   * Names that lock, in letters and digits. A lock proves nothing about a copy of the data directory or of the whole
   * machine, which may have the same name but has another lock: with it, only sessions that were begun under the same
   * lock can be predecessors.
   */
  readonly lock?: string;
}

export interface AcquireOptions extends LeaseCallbacks {
  /**
   * An epoch that is known from what was written under the lease. The new epoch is larger, even if the lease's document
   * was removed.
   */
  epochAbove?: number;
  signal?: AbortSignal;
}

export interface HandoverOptions extends AcquireOptions {
  /**
   * The time for which to wait; without it, the call waits until `signal` is aborted. After this time the call rejects
   * with `timed_out`, and this server does not wait any more.
   */
  timeoutMs?: number;
  onProgress?: (progress: HandoverProgress) => void;
}

export interface LeaseView {
  epoch: number;
  owner: LeaseParty | undefined;
  waiter: LeaseParty | undefined;
}

/**
 * The leases of one server in one store. It remembers what it has seen of other servers' leases, so that they also
 * expire between calls.
 */
export class Leases {
  readonly #options: LeasesOptions;
  readonly #clock: Clock;
  readonly #timing: LeaseTiming;
  readonly #observations: Observations;
  /** The sessions of this process, which is alive: none of them is a predecessor. */
  readonly #sessions = new Set<string>();
  readonly #listeners = new Map<string, Set<{ notify(): void }>>();

  /**
   * First proves that conditional writes work in this store, and rejects with `unsupported` where they do not: leases
   * would not be safe there.
   */
  static async open(options: LeasesOptions, call: CallOptions = {}): Promise<Leases> {
    await options.store.probe(call);
    return new Leases(options);
  }

  /** For a store that was probed. */
  constructor(options: LeasesOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#timing = completeTiming(options.timing);
    this.#observations = new Observations(this.#clock);
  }

  /**
   * Acquires a lease that is free, was released, or whose owner this server has seen without a renewal for long enough.
   * Otherwise rejects with `in_use`, naming owner and waiter.
   */
  acquire(key: string, options: AcquireOptions = {}): Promise<Lease> {
    return this.#run(key, options, { isPatient: false, limitMs: 3 * this.#timing.callMs });
  }

  /**
   * Registers as the waiter for a lease, waits until its owner releases it or has not renewed it for long enough, and
   * acquires it. Rejects with `in_use` when another server waits already.
   */
  waitForHandover(key: string, options: HandoverOptions = {}): Promise<Lease> {
    return this.#run(key, options, { isPatient: true, limitMs: options.timeoutMs ?? Infinity });
  }

  /** Reads who has the lease and who waits for it, without any claim. */
  async look(key: string, options: CallOptions = {}): Promise<LeaseView | undefined> {
    const sight = await this.#file(key).read(options.signal);
    if (sight === undefined) return undefined;
    this.#observations.note(key, sight.document);
    const named = (claimant: Claimant | null): LeaseParty | undefined =>
      claimant === null ? undefined : partyOf(claimant);
    const { epoch, owner, waiter } = sight.document;
    return { epoch, owner: named(owner), waiter: named(waiter) };
  }

  /**
   * Another server reports that it has written to this lease: its owner or waiter in this process looks at once. This
   * is never needed, only faster.
   */
  notify(key: string): void {
    for (const listener of this.#listeners.get(key) ?? []) listener.notify();
  }

  async #run(key: string, options: HandoverOptions, manner: { isPatient: boolean; limitMs: number }): Promise<Lease> {
    const { epochAbove = 0, onProgress, signal, ...callbacks } = options;
    const acquisition = new Acquisition({
      ...manner,
      file: this.#file(key),
      lock: this.#options.lock,
      clock: this.#clock,
      timing: this.#timing,
      observations: this.#observations,
      self: this.#options.self,
      isPredecessor: (owner) => this.#isPredecessor(owner),
      epochAbove,
      callbacks,
      onEnd: (lease) => {
        this.#sessions.delete(acquisition.session);
        this.#ignore(key, lease);
      },
      onProgress,
      signal,
    });
    this.#sessions.add(acquisition.session);
    this.#listen(key, acquisition);
    try {
      const lease = await acquisition.run();
      if (lease.state === "held") this.#listen(key, lease);
      return lease;
    } catch (error) {
      this.#sessions.delete(acquisition.session);
      throw error;
    } finally {
      this.#ignore(key, acquisition);
    }
  }

  #isPredecessor(owner: Claimant): boolean {
    const { lock } = this.#options;
    if (this.#sessions.has(owner.session) || (lock !== undefined && !isUnderLock(owner.session, lock))) return false;
    return this.#options.isPredecessor?.(partyOf(owner)) ?? false;
  }

  #file(key: string): LeaseFile {
    return new LeaseFile({ store: this.#options.store, key, clock: this.#clock, callMs: this.#timing.callMs });
  }

  #listen(key: string, listener: { notify(): void }): void {
    const listeners = this.#listeners.get(key) ?? new Set();
    this.#listeners.set(key, listeners.add(listener));
  }

  #ignore(key: string, listener: { notify(): void }): void {
    const listeners = this.#listeners.get(key);
    listeners?.delete(listener);
    if (listeners?.size === 0) this.#listeners.delete(key);
  }
}
