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
  /** Who this server is to others. */
  self: LeaseParty;
  timing?: Partial<LeaseTiming>;
  clock?: Clock;
  /**
   * Whether the process that wrote this owner is known to be dead, because this one holds the lock of its data
   * directory. Its leases are taken over at once.
   */
  isPredecessor?: (owner: LeaseParty) => boolean;
  /**
   * Names that lock, in letters and digits. A lock proves nothing about a copy of the data directory or of the whole
   * machine, which may have the same name and has another lock: with it, only those who wrote under the same one can be
   * predecessors.
   */
  readonly lock?: string;
}

export interface AcquireOptions extends LeaseCallbacks {
  /**
   * An epoch that is known from what was written under the lease: the new one is larger even if the lease's document
   * was removed.
   */
  epochAbove?: number;
  signal?: AbortSignal;
}

export interface HandoverOptions extends AcquireOptions {
  /**
   * For how long to wait; without it, until `signal` is aborted. Then it rejects with `timed_out`, and nobody waits any
   * more.
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
 * The leases of one server in one store. Whatever it has seen of others' leases it remembers, so that they expire for
 * it also between calls.
 */
export class Leases {
  readonly #options: LeasesOptions;
  readonly #clock: Clock;
  readonly #timing: LeaseTiming;
  readonly #observations: Observations;
  /** Of this process, and alive: nobody's predecessors. */
  readonly #sessions = new Set<string>();
  readonly #listeners = new Map<string, Set<{ notify(): void }>>();

  /**
   * Proves first that conditions hold in this store, and rejects with `unsupported` where they do not: leases would be
   * worth nothing there.
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
   * Takes a lease that is free, was given back, or whose owner this server has seen silent for long enough. Otherwise
   * rejects with `in_use`, naming owner and waiter.
   */
  acquire(key: string, options: AcquireOptions = {}): Promise<Lease> {
    return this.#run(key, options, { isPatient: false, limitMs: 3 * this.#timing.callMs });
  }

  /**
   * Becomes the one who waits for a lease, waits until its owner gives it back or has been silent for long enough, and
   * takes it. Rejects with `in_use` when somebody else waits already.
   */
  waitForHandover(key: string, options: HandoverOptions = {}): Promise<Lease> {
    return this.#run(key, options, { isPatient: true, limitMs: options.timeoutMs ?? Infinity });
  }

  /** Who has it and who waits, without any claim. */
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
   * Another server says that it has written to this lease: whoever holds it or waits for it here looks at once. Never
   * needed, only faster.
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
