import { isSandboxError, SandboxError } from "@atoll/protocol";
import { pause, type Clock } from "./clock.ts";
import { partyOf, type Claimant, type LeaseDocument, type LeaseParty } from "./lease-document.ts";
import type { LeaseFile, LeaseSight } from "./lease-file.ts";
import { leaseLost, type LeaseLoss } from "./lease-lost.ts";
import type { LeaseTiming } from "./lease-timing.ts";
import { Notify } from "./notify.ts";
import type { Observations } from "./observations.ts";

/**
 * A renewal that is due within this time is due now: a clock need not be able to wait for less, and no look is answered
 * within it.
 */
const soonMs = 1;

type LeaseEvent = "release" | "confirm" | "lose" | "abandon";

/**
 * Operations are allowed in `held` only, and no transition leads back to it: to get the lease again, acquire it under a
 * new epoch.
 */
export const leaseTransitions = {
  held: { release: "releasing", lose: "lost", abandon: "abandoned" },
  releasing: { confirm: "released", lose: "lost" },
  released: {},
  lost: {},
  abandoned: {},
} as const satisfies Record<string, Partial<Record<LeaseEvent, string>>>;

export type LeaseState = keyof typeof leaseTransitions;

/** The check before every write under a lease, and the epoch that the write carries. */
export interface Fence {
  readonly epoch: number;
  /** Aborted when the lease is lost or released, with the reason. */
  readonly signal: AbortSignal;
  /** Throws `lease_lost` unless the lease is certainly ours at this moment. */
  assertCurrent(): void;
}

export interface LeaseCallbacks {
  /** The lease is certainly ours for `remainingMs` from now, which is longer than was known before. */
  onRenewed?: (remainingMs: number) => void;
  /** A server waits for this lease: checkpoint, stop, and call `release`. Called once per waiter. */
  onReleaseRequested?: (waiter: LeaseParty) => void;
  /** A renewal failed or was not answered. It is read back and retried; in `lostInMs` the lease is lost. */
  onRenewalFailed?: (error: unknown, lostInMs: number) => void;
  /** Called once. The sandbox has to stop within `stopMs`, after which another server may run it. */
  onLost?: (loss: LeaseLoss) => void;
}

/** How the owner got the lease. */
export type LeaseOrigin = "created" | "released" | "expired" | "reclaimed";

export interface HeldLease {
  file: LeaseFile;
  clock: Clock;
  timing: LeaseTiming;
  origin: LeaseOrigin;
  /** The document as the acquiring write left it. */
  sight: LeaseSight;
  me: Claimant;
  /** When the renewals that may be in the document were sent: they are valid from then on. */
  sentAtMs: Map<number, number>;
  callbacks: LeaseCallbacks;
  /** What this process has seen of other servers, the waiter among them. */
  observations: Observations;
  onEnd: (lease: Lease) => void;
}

/**
 * A lease that this process has acquired, renewed in the background until it is released or lost. It counts as ours for
 * `ttlMs - stopMs`, by this process's own clock, from before the last successful renewal was sent. Other servers wait
 * longer than that, from after they saw the renewal.
 */
export class Lease implements Fence, AsyncDisposable {
  readonly key: string;
  readonly epoch: number;
  readonly origin: LeaseOrigin;
  readonly #held: HeldLease;
  readonly #ended = new AbortController();
  readonly #notify = new Notify();
  readonly #keeping: Promise<void>;
  #state: LeaseState = "held";
  #loss: LeaseLoss = { reason: "released" };
  #sight: LeaseSight;
  #renewals: number;
  #validFromMs = -Infinity;
  #renewAtMs = 0;
  #lookAtMs: number;
  #waiterSession: string | undefined;
  #cancelExpiry: () => void = () => undefined;
  #release: Promise<void> | undefined;

  /** Called by `Leases` only. */
  constructor(held: HeldLease) {
    this.#held = held;
    this.key = held.file.key;
    this.epoch = held.sight.document.epoch;
    this.origin = held.origin;
    this.#sight = held.sight;
    this.#renewals = held.me.renewal;
    this.#lookAtMs = held.clock.now() + held.timing.watchMs;
    this.#adopt(held.sight);
    this.#armExpiry();
    this.#keeping = this.#keep();
  }

  get state(): LeaseState {
    return this.#state;
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /**
   * The server that waits for the lease, as far as this owner has seen. A waiter that has not renewed its claim in time
   * does not count.
   */
  get waiter(): LeaseParty | undefined {
    const { waiter } = this.#sight.document;
    if (waiter === null || this.#held.observations.remainingMs(this.key, "waiter", waiter) === 0) return undefined;
    return partyOf(waiter);
  }

  get isCurrent(): boolean {
    return this.#state === "held" && this.#held.clock.now() < this.#lostAtMs;
  }

  /** For how long the lease is certainly ours without another renewal. */
  get remainingMs(): number {
    return this.isCurrent ? this.#lostAtMs - this.#held.clock.now() : 0;
  }

  assertCurrent(): void {
    if (this.isCurrent) return;
    // After the process was stopped, this runs before any timer does.
    if (this.#state === "held") this.#lose({ reason: "expired" });
    throw leaseLost(this.key, this.epoch, this.#loss);
  }

  /** The server that waits for the lease now, or was last seen to wait if the store does not answer. */
  async lookForWaiter(): Promise<LeaseParty | undefined> {
    if (this.#state === "held") await this.#look();
    return this.waiter;
  }

  /** Looks for a waiter now, because another server reported one. */
  notify(): void {
    this.#notify.give();
  }

  /**
   * Releases the lease, which is not ours any more once this is called. Resolves when others can see that, or when the
   * lease was lost before. Rejects with `unavailable` if the store could not be written: then the lease expires by
   * itself.
   */
  release(): Promise<void> {
    this.#release ??= this.#releaseOnce();
    return this.#release;
  }

  /**
   * Stops renewing without a write to the store, for a process that ends and leaves its sandboxes to the next process
   * of the same server. Other servers get the lease when it has expired.
   */
  abandon(): void {
    if (this.#state === "held") this.#end("abandon", { reason: "abandoned" });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  get #lostAtMs(): number {
    return this.#validFromMs + this.#held.timing.ttlMs - this.#held.timing.stopMs;
  }

  async #keep(): Promise<void> {
    const { clock } = this.#held;
    while (this.#state === "held") {
      const nextMs = Math.min(this.#renewAtMs, this.#lookAtMs) - clock.now();
      await this.#notify.pause(clock, nextMs, this.#ended.signal);
      if (this.#state !== "held") return;
      if (!this.isCurrent) return this.#lose({ reason: "expired" });
      const renewInMs = this.#renewAtMs - clock.now();
      // A look that is not answered must not delay a renewal.
      await (renewInMs < soonMs ? this.#renew() : this.#look(renewInMs));
      this.#lookAtMs = clock.now() + this.#held.timing.watchMs;
    }
  }

  async #renew(): Promise<void> {
    const { clock, file, timing, me, sentAtMs, callbacks } = this.#held;
    this.#renewals += 1;
    const renewal = this.#renewals;
    sentAtMs.set(renewal, clock.now());
    try {
      this.#adopt(await file.write(this.#documentWith({ ...me, renewal }), this.#sight.version, this.signal));
    } catch (error) {
      const isRefused = isSandboxError(error, "conflict");
      if (!isRefused && this.#state === "held") {
        this.#report(() => callbacks.onRenewalFailed?.(error, this.remainingMs));
      }
      // The write was refused or not answered. It may have happened all the same, or a waiter's write came first; only
      // a read shows which.
      const isKnown = await this.#look();
      const isDone = this.#state !== "held" || clock.now() < this.#renewAtMs;
      if (!isDone && !(isKnown && isRefused)) this.#renewAtMs = clock.now() + timing.retryMs;
    }
  }

  /** Returns false when the document could not be read. That does not lose the lease yet: a failing renewal would. */
  async #look(limitMs?: number): Promise<boolean> {
    let sight: LeaseSight | undefined;
    try {
      sight = await this.#held.file.read(this.signal, limitMs);
    } catch {
      return false;
    }
    if (this.#state !== "held") return true;
    if (sight === undefined) this.#lose({ reason: "removed" });
    else if (this.#isOurs(sight)) this.#adopt(sight);
    else this.#lose({ reason: "stolen", ...whoHas(sight.document) });
    return true;
  }

  #isOurs({ document }: LeaseSight): boolean {
    return document.epoch === this.epoch && document.owner?.session === this.#held.me.session;
  }

  #documentWith(owner: Claimant | null): Pick<LeaseDocument, "epoch" | "owner" | "waiter"> {
    return { epoch: this.epoch, owner, waiter: this.#sight.document.waiter };
  }

  #adopt(sight: LeaseSight): void {
    if (this.#state !== "held") return;
    const { sentAtMs, timing, callbacks, observations } = this.#held;
    this.#sight = sight;
    observations.note(this.key, sight.document);
    const { owner, waiter } = sight.document;
    const sentMs = sentAtMs.get(owner?.renewal ?? 0);
    if (sentMs !== undefined && sentMs > this.#validFromMs) {
      this.#validFromMs = sentMs;
      this.#renewAtMs = sentMs + timing.renewMs;
      // Renewals sent before that one were conditional on a version that is gone, so they cannot succeed any more.
      for (const renewal of sentAtMs.keys()) if (renewal < (owner?.renewal ?? 0)) sentAtMs.delete(renewal);
      this.#report(() => {
        if (this.isCurrent) callbacks.onRenewed?.(this.remainingMs);
      });
    }
    if (waiter === null || waiter.session === this.#waiterSession) return;
    this.#waiterSession = waiter.session;
    this.#report(() => callbacks.onReleaseRequested?.(partyOf(waiter)));
  }

  #armExpiry(): void {
    const { clock } = this.#held;
    this.#cancelExpiry = clock.after(this.#lostAtMs - clock.now(), () => {
      if (this.#state !== "held") return;
      if (clock.now() >= this.#lostAtMs) this.#lose({ reason: "expired" });
      else this.#armExpiry();
    });
  }

  #lose(loss: LeaseLoss): void {
    this.#end("lose", loss);
    this.#report(() => this.#held.callbacks.onLost?.(loss));
  }

  #move(event: LeaseEvent): void {
    const events: Partial<Record<LeaseEvent, LeaseState>> = leaseTransitions[this.#state];
    const next = events[event];
    if (next === undefined) throw new Error(`A lease that is ${this.#state} cannot ${event}`);
    this.#state = next;
  }

  #end(event: "lose" | "release" | "abandon", loss: LeaseLoss): void {
    this.#move(event);
    this.#loss = loss;
    this.#cancelExpiry();
    this.#ended.abort(leaseLost(this.key, this.epoch, loss));
    this.#held.onEnd(this);
  }

  async #releaseOnce(): Promise<void> {
    if (this.#state !== "held") return;
    if (!this.isCurrent) return this.#lose({ reason: "expired" });
    this.#end("release", { reason: "released" });
    await this.#keeping;
    const { clock, timing } = this.#held;
    const pointlessAtMs = this.#validFromMs + timing.ttlMs;
    let cause: unknown;
    while (clock.now() < pointlessAtMs) {
      const failure = await this.#tryToRelease();
      if (failure === undefined) {
        this.#move("confirm");
        return;
      }
      cause = failure;
      if (!isSandboxError(failure, "conflict")) await pause(clock, timing.retryMs);
    }
    this.#move("lose");
    throw new SandboxError("unavailable", `Cannot release the lease ${this.key}: the store did not accept the write`, {
      suggestion: "Nothing needs to be done: the lease expires by itself.",
      details: { key: this.key, epoch: this.epoch },
      cause,
    });
  }

  /** Resolves with the reason why the document may still name us as the owner, or with undefined. */
  async #tryToRelease(): Promise<unknown> {
    const { file } = this.#held;
    try {
      await file.write(this.#documentWith(null), this.#sight.version);
      return undefined;
    } catch (error) {
      return this.#whyStillOurs(error);
    }
  }

  async #whyStillOurs(refusal: unknown): Promise<unknown> {
    try {
      const sight = await this.#held.file.read();
      if (sight === undefined || !this.#isOurs(sight)) return undefined;
      this.#sight = sight;
      return refusal;
    } catch (error) {
      return error;
    }
  }

  /**
   * Calls back after this turn, so that the callback finds the lease in its new state and cannot interrupt the change.
   */
  #report(call: () => void): void {
    queueMicrotask(call);
  }
}

function whoHas({ epoch, owner }: LeaseDocument): { epoch: number; owner: LeaseParty | undefined } {
  return { epoch, owner: owner === null ? undefined : partyOf(owner) };
}
