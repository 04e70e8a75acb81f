import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { ObjectVersion } from "../object-store.ts";
import type { Clock } from "./clock.ts";
import { partyOf, type Claimant, type LeaseParty } from "./lease-document.ts";
import { newToken, type LeaseFile, type LeaseSight } from "./lease-file.ts";
import type { LeaseTiming } from "./lease-timing.ts";
import { Lease, type LeaseCallbacks, type LeaseOrigin } from "./lease.ts";
import { Notify } from "./notify.ts";
import type { Observations } from "./observations.ts";
import { judge, waiterAfter, type Judge, type Verdict } from "./verdict.ts";

/** What happens while a server waits for a lease. Each phase is reported when it begins. */
export type HandoverProgress =
  /**
   * This server is registered as the waiter. The owner is asked to release the lease; if it is gone, that is certain in
   * `expiresInMs`.
   */
  | { phase: "waiting"; owner: LeaseParty; epoch: number; expiresInMs: number }
  /** The store does not answer; the call is retried. */
  | { phase: "unreachable"; error: unknown }
  | { phase: "acquired"; origin: LeaseOrigin; epoch: number };

export interface AcquisitionOptions {
  file: LeaseFile;
  /** The lock that the new session names. */
  lock: string | undefined;
  clock: Clock;
  timing: LeaseTiming;
  observations: Observations;
  self: LeaseParty;
  isPredecessor: (owner: Claimant) => boolean;
  epochAbove: number;
  callbacks: LeaseCallbacks;
  onEnd: (lease: Lease) => void;
  /** Whether to register as the waiter and wait while the lease has an owner. */
  isPatient: boolean;
  /** The time for which to try, by the clock. Failing calls of the store are retried until then. */
  limitMs: number;
  onProgress?: ((progress: HandoverProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
}

/** One attempt of this server to get one lease, with or without waiting for it. Used once. */
export class Acquisition {
  readonly #options: AcquisitionOptions;
  readonly session: string;
  readonly #judge: Judge;
  readonly #sentAtMs = new Map<number, number>();
  readonly #notify = new Notify();
  readonly #startMs: number;
  #writes = 0;
  #origin: LeaseOrigin = "created";
  #reported = "";

  constructor(options: AcquisitionOptions) {
    const { file, observations, isPredecessor } = options;
    this.#options = options;
    this.session = options.lock === undefined ? newToken() : `${options.lock}-${newToken()}`;
    this.#startMs = options.clock.now();
    this.#judge = {
      session: this.session,
      remainingMs: (who, claimant) => observations.remainingMs(file.key, who, claimant),
      isPredecessor,
    };
  }

  /** Looks at the lease now, because another server reported that it was released. */
  notify(): void {
    this.#notify.give();
  }

  async run(): Promise<Lease> {
    try {
      return await this.#untilHeld();
    } catch (error) {
      if (this.#writes > 0) await this.#withdraw();
      throw error;
    }
  }

  get #leftMs(): number {
    return this.#startMs + this.#options.limitMs - this.#options.clock.now();
  }

  async #untilHeld(): Promise<Lease> {
    const { clock, timing, signal } = this.#options;
    for (;;) {
      signal?.throwIfAborted();
      let pauseMs = timing.retryMs;
      try {
        const step = await this.#step();
        if (step instanceof Lease) return step;
        pauseMs = step;
      } catch (error) {
        signal?.throwIfAborted();
        if (!mayPass(error) || this.#leftMs <= 0) throw error;
        this.#report("unreachable", { phase: "unreachable", error });
      }
      if (this.#leftMs <= 0) throw this.#timedOut();
      await this.#notify.pause(clock, Math.min(pauseMs, this.#leftMs), signal);
    }
  }

  /**
   * Reads the lease and takes the one possible step. Returns the lease, or in how many milliseconds to take the next
   * step.
   */
  async #step(): Promise<Lease | number> {
    const { file, observations, isPatient, epochAbove, signal } = this.#options;
    const sight = await file.read(signal);
    if (sight === undefined) {
      this.#origin = "created";
      return this.#write("absent", { epoch: epochAbove + 1, owner: this.#claim("ttlMs"), waiter: null });
    }
    observations.note(file.key, sight.document);
    const held = this.#heldBy(sight);
    if (held !== undefined) return held;
    const verdict = judge(sight.document, this.#judge);
    if (verdict.may === "take") {
      this.#origin = verdict.origin;
      const epoch = Math.max(sight.document.epoch, epochAbove) + 1;
      const waiter = waiterAfter(sight.document, this.#judge);
      return this.#write(sight.version, { epoch, owner: this.#claim("ttlMs"), waiter });
    }
    if (verdict.may === "leave" || !isPatient) throw this.#inUse(sight, verdict);
    return this.#wait(sight, verdict.owner);
  }

  async #wait({ document, version }: LeaseSight, owner: Claimant): Promise<number> {
    const { clock, timing, observations, file } = this.#options;
    const isRegistered = document.waiter?.session === this.session;
    const shownMs = isRegistered ? this.#sentAtMs.get(document.waiter?.renewal ?? 0) : undefined;
    if (shownMs === undefined || clock.now() >= shownMs + timing.waiterTtlMs / 3) {
      const waiter = this.#claim("waiterTtlMs");
      await this.#write(version, { epoch: document.epoch, owner: document.owner, waiter });
      return 0;
    }
    const expiresInMs = observations.remainingMs(file.key, "owner", owner);
    const news = { phase: "waiting", owner: partyOf(owner), epoch: document.epoch, expiresInMs } as const;
    this.#report(`waiting ${document.epoch}`, news);
    return Math.min(timing.pollMs, Math.max(1, expiresInMs));
  }

  /** The next read shows at once what came of the write: if it was refused, another server was faster. */
  async #write(
    instead: "absent" | ObjectVersion,
    document: Pick<LeaseSight["document"], "epoch" | "owner" | "waiter">,
  ): Promise<Lease | number> {
    const { file, observations, signal } = this.#options;
    try {
      const sight = await file.write(document, instead, signal);
      observations.note(file.key, sight.document);
      return this.#heldBy(sight) ?? 0;
    } catch (error) {
      if (isSandboxError(error, "conflict")) return 0;
      throw error;
    }
  }

  /** A lease that was acquired so long ago that it may be lost already is acquired once more. */
  #heldBy(sight: LeaseSight): Lease | undefined {
    const { file, clock, timing, callbacks, onEnd, observations } = this.#options;
    const { owner, epoch } = sight.document;
    if (owner?.session !== this.session) return undefined;
    const sentMs = this.#sentAtMs.get(owner.renewal) ?? -Infinity;
    if (clock.now() >= sentMs + timing.ttlMs - timing.stopMs) return undefined;
    observations.forget(file.key);
    this.#report("acquired", { phase: "acquired", origin: this.#origin, epoch });
    const me = { ...owner, renewal: this.#writes };
    const sentAtMs = this.#sentAtMs;
    return new Lease({
      file,
      clock,
      timing,
      origin: this.#origin,
      sight,
      me,
      sentAtMs,
      callbacks,
      observations,
      onEnd,
    });
  }

  #claim(ttl: "ttlMs" | "waiterTtlMs"): Claimant {
    const { clock, self, timing } = this.#options;
    this.#writes += 1;
    this.#sentAtMs.set(this.#writes, clock.now());
    return { ...partyOf(self), session: this.session, renewal: this.#writes, ttlMs: timing[ttl] };
  }

  /**
   * Undoes what this attempt may have written; what cannot be undone expires. The caller's signal does not count here.
   */
  async #withdraw(): Promise<void> {
    const { file } = this.#options;
    for (let attempt = 0; attempt < 3; attempt += 1) {
      try {
        const sight = await file.read();
        if (sight === undefined) return;
        const { epoch, owner, waiter } = sight.document;
        const without = (claimant: Claimant | null): Claimant | null =>
          claimant?.session === this.session ? null : claimant;
        if (without(owner) === owner && without(waiter) === waiter) return;
        await file.write({ epoch, owner: without(owner), waiter: without(waiter) }, sight.version);
        return;
      } catch (error) {
        if (!isSandboxError(error, "conflict")) return;
      }
    }
  }

  #report(what: string, progress: HandoverProgress): void {
    const { onProgress } = this.#options;
    if (this.#reported === what) return;
    this.#reported = what;
    if (onProgress !== undefined) queueMicrotask(() => onProgress(progress));
  }

  #inUse({ document }: LeaseSight, verdict: Exclude<Verdict, { may: "take" }>): SandboxError {
    const { file } = this.#options;
    const { owner, waiter, epoch } = document;
    const named = (claimant: Claimant | null): LeaseParty | null => (claimant === null ? null : partyOf(claimant));
    const why =
      verdict.may === "wait" ? `server ${verdict.owner.id} has it` : `server ${verdict.waiter.id} waits for it already`;
    return new SandboxError("in_use", `Cannot take the lease ${file.key}: ${why}`, {
      suggestion: "Ask that server, or try again later.",
      details: { key: file.key, epoch, owner: named(owner), waiter: named(waiter) },
    });
  }

  #timedOut(): SandboxError {
    const { file, limitMs } = this.#options;
    return new SandboxError("timed_out", `Cannot take the lease ${file.key}: its owner did not give it back in time`, {
      details: { key: file.key, limitMs },
    });
  }
}

/** Whether a holder of that lock began this session. */
export function isUnderLock(session: string, lock: string): boolean {
  return session.startsWith(`${lock}-`);
}

/** Whether another attempt may succeed. */
function mayPass(error: unknown): boolean {
  return isSandboxError(error) && ["unavailable", "storage_failed", "timed_out"].includes(error.code);
}
