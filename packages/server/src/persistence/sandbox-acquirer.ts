import type { Sandbox } from "@atoll/engine";
import {
  firstToAbort,
  isSandboxError,
  SandboxError,
  type PhaseTimes,
  type SandboxId,
  type ServerRef,
} from "@atoll/protocol";
import type { LeaseCallbacks, LeaseLoss } from "@atoll/storage";
import { retryUntilDone } from "../support/retry-until-done.ts";
import { isStoppedForHandOver } from "./handover-mark.ts";
import type { Handovers, HandoversOptions } from "./handovers.ts";
import type { MetadataCache } from "./metadata-cache.ts";
import { RunDeadlines } from "./run-deadlines.ts";
import { SandboxHandle } from "./sandbox-handle.ts";
import type { SandboxMetadata } from "./sandbox-metadata.ts";

export interface SandboxAcquirerOptions extends HandoversOptions {
  handovers: Handovers;
  metadataCache: MetadataCache;
}

/** How long another server may take to save a sandbox and give it up. */
const patienceMs = 5 * 60_000;
const retries = { firstMs: 250, longestMs: 10_000 };

/**
 * Gets sandboxes for this server: from another one, from the stores, or back after their lease was lost. None runs here
 * without its lease.
 */
export class SandboxAcquirer {
  readonly runDeadlines: RunDeadlines;
  readonly #options: SandboxAcquirerOptions;
  /** How long it took to get those that were not resumed since. */
  readonly #phases = new Map<SandboxId, PhaseTimes>();
  readonly #settling = new Set<SandboxId>();
  /** Those here of which nothing is stored, as was told. */
  readonly #unknown = new Set<SandboxId>();

  constructor(options: SandboxAcquirerOptions) {
    this.#options = options;
    this.runDeadlines = new RunDeadlines(options);
  }

  /** Of the way here, once. */
  acquirePhases(id: SandboxId): PhaseTimes {
    const phases = this.#phases.get(id) ?? {};
    this.#phases.delete(id);
    return phases;
  }

  /**
   * Gets the lease, however long that takes, and what belongs to it. From when it has the lease, it does not matter
   * whether anybody still waits.
   */
  take(id: SandboxId, signal: AbortSignal): Promise<void> {
    return this.#options.owned.inTurn(id, () => this.acquireInTurn(id, signal));
  }

  /** For one whose turn it is. */
  async acquireInTurn(id: SandboxId, signal?: AbortSignal): Promise<void> {
    if (this.#options.owned.has(id)) return;
    await this.#options.kills.unlessKilled(id, async (killed) => {
      const startedMs = performance.now();
      const before = await this.#assertCouldRun(id);
      using stop = firstToAbort(signal, this.#options.closing, killed);
      const handle = await SandboxHandle.attachPersistent(this.#options.home, id, {
        patienceMs,
        signal: stop,
        onProgress: (progress) => {
          if (progress.phase === "waiting") this.#options.notifyServer(progress.owner, id);
        },
        ...this.callbacks(id),
      }).catch(async (error: unknown) => {
        if (isSandboxError(error, "not_found") && (await this.#lookAfterCopy(id)) === "unknown") {
          throw this.#unknownHere(id);
        }
        throw error;
      });
      await this.#assertNotKept(handle);
      await this.#settleIn(handle, { leaseMs: performance.now() - startedMs, signal: killed });
      if (before !== undefined && before.id !== this.#options.self().id) this.#options.notifyServer(before, id);
    });
  }

  /** Nothing is stopped for a server that could not go on with it, as far as is known of it. Tells who has it. */
  async #assertCouldRun(id: SandboxId): Promise<ServerRef | undefined> {
    const { metadataCache, engine, self } = this.#options;
    const metadata = metadataCache.recall(id);
    if (metadata === undefined) return undefined;
    const { state, server, record, needs } = metadata;
    if (state === "running" && server.id !== self().id && needs !== undefined)
      await engine.assertCouldRun(record, needs);
    return server;
  }

  /**
   * One that has failed stays where its files are. Only when that server has gone silent does another one go on from
   * what is stored.
   */
  async #assertNotKept(handle: SandboxHandle): Promise<void> {
    const { id, metadata, wasGivenBack } = handle;
    const { failure, server } = metadata;
    if (failure === undefined || server.id === this.#options.self().id || !wasGivenBack) return;
    await handle.release().catch(() => undefined);
    this.#options.metadataCache.forget(id);
    this.#options.notifyServer(server, id);
    throw new SandboxError(
      "invalid_state",
      `Cannot bring sandbox ${id} here: it has failed on server ${server.id}: ${failure.message}`,
      {
        suggestion: `Its files are kept there: ask ${server.url} to resume it without memory, for a snapshot of it or to roll it back, or kill it, here or there.`,
        details: { sandboxId: id, state: "failed", reason: failure, server },
      },
    );
  }

  async #settleIn(
    handle: SandboxHandle,
    { leaseMs, signal }: { leaseMs: number; signal?: AbortSignal },
  ): Promise<void> {
    const { id } = handle;
    try {
      const startedMs = performance.now();
      const { copies, checkpoints } = this.#options;
      const isOutdated = (await copies.judge(handle.metadata)) === "outdated";
      if (isOutdated && !(await checkpoints.storeLeftBehind(id))) throw leftBehindHere(id);
      const { managed, worth } = await copies.bring(handle, { signal });
      await this.own(handle);
      if (worth === "live") await checkpoints.settleRollback(handle, managed);
      await managed.restoreCommands();
      this.#options.owned.open(handle);
      this.#options.metadataCache.forget(id);
      this.#phases.set(id, { lease: leaseMs, download: performance.now() - startedMs });
      const { state } = managed.sandbox;
      if (state === "running") managed.clock.start();
      if (worth === "live" && state === "paused") await this.#endPause(managed.sandbox);
      if (worth === "live" && state === "failed") this.#options.handovers.emitFailure(id);
      if (worth !== "live" && state === "paused" && handle.metadata.state !== "paused") await this.#options.resume(id);
    } catch (error) {
      await this.runDeadlines.stop(id);
      this.#options.owned.remove(handle);
      const isHere = this.#options.copies.find(id) !== undefined;
      await this.#letGo(handle, { isHere });
      if (isHere) this.settle(id, retries.longestMs);
      throw error;
    }
  }

  /**
   * One that this server has, and no store, is not given to others by a failure here: they would go on from before. And
   * what runs may not have heard that it must stop: it has, by itself, when the lease has run out. Until then this
   * server alone can have it again.
   */
  async #letGo(handle: SandboxHandle, { isHere }: { isHere: boolean }): Promise<void> {
    const { state, server } = handle.metadata;
    if (isHere && state === "running" && server.id === this.#options.self().id) handle.abandon();
    else await handle.release().catch(() => undefined);
  }

  /** A server before this one has begun it, and nobody but it has what was saved. */
  async #endPause(sandbox: Sandbox): Promise<void> {
    const { handovers } = this.#options;
    if (await isStoppedForHandOver(sandbox)) handovers.endHandOver(sandbox.id);
    else handovers.resumeStoring(sandbox.id);
  }

  /** Finds out whether what is here is this server's own, until it is known: takes it, leaves it, or drops it. */
  settle(id: SandboxId, afterMs = 0): void {
    if (this.#settling.has(id)) return;
    this.#settling.add(id);
    const { inBackground, owned, log } = this.#options;
    const onFailure = (error: unknown): void => {
      log.warn({ err: error, sandboxId: id }, "not known yet whose sandbox it is");
    };
    inBackground("settle", id, (signal) =>
      retryUntilDone({ ...retries, afterMs, signal, onFailure }, () =>
        owned.inTurn(id, () => this.#trySettle(id, signal)),
      ).finally(() => this.#settling.delete(id)),
    );
  }

  /**
   * False: it is this server's, but its lease is not to be had yet; or it is not, and the store does not take what a
   * rollback left behind here.
   */
  async #trySettle(id: SandboxId, signal: AbortSignal): Promise<boolean> {
    const { home } = this.#options;
    if (this.#options.owned.has(id) || this.#options.copies.find(id) === undefined) return true;
    const metadata = await SandboxHandle.read(home, id, signal);
    if (metadata === undefined || metadata.isKilled) {
      await this.#lookAfterCopy(id, metadata);
      return true;
    }
    this.#unknown.delete(id);
    const worth = await this.#options.copies.judge(metadata);
    if (worth === "outdated") {
      if (!(await this.#options.checkpoints.storeLeftBehind(id))) return false;
      await this.#options.copies.drop(id, `server ${metadata.server.id} went on with it`);
      return true;
    }
    this.#options.handovers.storeLeftBehind(id);
    // A container that runs in this very directory is no copy. What does not run may be one, of a server that is only
    // away: it stays as it is until somebody asks for it here.
    const isOurs = worth === "live" || (worth === "inherited" && this.#options.engine.get(id).state === "running");
    // It ran here until another server asked for it, which has not taken it so far.
    const isLeft = worth === "same" && metadata.state === "moving" && metadata.server.id === this.#options.self().id;
    if (!isOurs && !isLeft) return true;
    try {
      const handle = await SandboxHandle.attachPersistent(home, id, { patienceMs: 0, signal, ...this.callbacks(id) });
      await this.#settleIn(handle, { leaseMs: 0 });
      // One that was lost meanwhile is looked for by nobody else: this is under way.
      return this.#options.owned.has(id);
    } catch (error) {
      if (isSandboxError(error, "in_use")) return false;
      throw error;
    }
  }

  /**
   * Of one that is not to be had. Only its own metadata say that it was killed, and then the copy goes. Without any,
   * the store may be another one, or an empty one in its place: what is here stays, and stands still.
   */
  async #lookAfterCopy(id: SandboxId, metadata?: SandboxMetadata): Promise<"gone" | "unknown"> {
    const { home, copies, log } = this.#options;
    const known = metadata ?? (await SandboxHandle.read(home, id));
    if (known?.isKilled === true) await copies.drop(id, "it was killed");
    if (known !== undefined || copies.find(id) === undefined) return "gone";
    await this.runDeadlines.stop(id);
    if (this.#unknown.has(id)) return "unknown";
    this.#unknown.add(id);
    const store = home.metadataStore?.place;
    log.error(
      { sandboxId: id, setting: "metadataStore", store },
      "nothing is stored of a persistent sandbox: it stands still",
    );
    return "unknown";
  }

  #unknownHere(id: SandboxId): SandboxError {
    const place = this.#options.home.metadataStore?.place ?? "any store";
    return new SandboxError("unrestorable", `Cannot go on with sandbox ${id}: nothing is known of it in ${place}`, {
      suggestion:
        "What is here of it is kept. Start this server with the metadataStore that it had before, or kill the sandbox.",
      details: { sandboxId: id, setting: "metadataStore" },
    });
  }

  /** Undefined: nothing is stored that could be killed. */
  async attachToKill(id: SandboxId): Promise<SandboxHandle | undefined> {
    const { home } = this.#options;
    if (home.metadataStore === undefined) return undefined;
    try {
      return await SandboxHandle.attachPersistent(home, id, {
        patienceMs,
        signal: this.#options.closing,
        onProgress: (progress) => {
          if (progress.phase === "waiting") this.#options.notifyServer(progress.owner, id);
        },
      });
    } catch (error) {
      if (!isSandboxError(error, "not_found")) throw error;
      await this.#lookAfterCopy(id);
      return undefined;
    }
  }

  async own(handle: SandboxHandle): Promise<void> {
    this.#options.owned.add(handle);
    await this.runDeadlines.extend(handle);
  }

  callbacks(id: SandboxId): LeaseCallbacks {
    return {
      onRenewed: () => {
        const handle = this.#options.owned.get(id);
        if (handle !== undefined) void this.runDeadlines.extendFurther(handle);
      },
      onReleaseRequested: (waiter) => this.#options.handovers.handOver(id, waiter),
      onRenewalFailed: (error, lostInMs) => {
        this.#options.log.warn({ err: error, sandboxId: id, lostInMs }, "lease not renewed");
      },
      onLost: (loss) => this.#lose(id, loss),
    };
  }

  /**
   * Its launcher has stopped it by now, or does at this moment. It goes on if this server is the next to have the
   * lease.
   */
  #lose(id: SandboxId, loss: LeaseLoss): void {
    const { log, emit, registry } = this.#options;
    this.#options.owned.forgetLost(id);
    void this.runDeadlines.stop(id);
    registry.get(id)?.clock.stop();
    log.error({ sandboxId: id, loss }, "lease lost");
    emit({ type: "sandbox.lease_lost", sandboxId: id, because: loss.reason });
    this.settle(id);
  }
}

function leftBehindHere(sandboxId: SandboxId): SandboxError {
  return new SandboxError(
    "storage_failed",
    `Cannot go on with sandbox ${sandboxId} here: an older copy is in the way`,
    {
      suggestion: "It has what a rollback left behind, which is being stored. Ask again later, or ask another server.",
      details: { sandboxId },
    },
  );
}
