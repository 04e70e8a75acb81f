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

/** How long another server may take to store a sandbox and release it. */
const handoverTimeoutMs = 5 * 60_000;
const retries = { firstMs: 250, longestMs: 10_000 };

/**
 * Acquires sandboxes for this server: from another one, from the stores, or again after a lost lease. No sandbox runs
 * here without its lease.
 */
export class SandboxAcquirer {
  readonly runDeadlines: RunDeadlines;
  readonly #options: SandboxAcquirerOptions;
  /** The times of acquisitions whose sandboxes were not resumed since. */
  readonly #phases = new Map<SandboxId, PhaseTimes>();
  readonly #reconciling = new Set<SandboxId>();
  /** The local copies without metadata that were logged already. */
  readonly #unknown = new Set<SandboxId>();

  constructor(options: SandboxAcquirerOptions) {
    this.#options = options;
    this.runDeadlines = new RunDeadlines(options);
  }

  /** Returns the times of the last acquisition, once. */
  acquirePhases(id: SandboxId): PhaseTimes {
    const phases = this.#phases.get(id) ?? {};
    this.#phases.delete(id);
    return phases;
  }

  /**
   * Acquires the lease, however long that takes, and then the sandbox. After it has the lease, it completes even if no
   * request waits any more.
   */
  acquire(id: SandboxId, signal: AbortSignal): Promise<void> {
    return this.#options.owned.inTurn(id, () => this.acquireInTurn(id, signal));
  }

  /** Acquires a sandbox inside its queue. */
  async acquireInTurn(id: SandboxId, signal?: AbortSignal): Promise<void> {
    if (this.#options.owned.has(id)) return;
    await this.#options.kills.unlessKilled(id, async (killed) => {
      const startedMs = performance.now();
      const before = await this.#assertCouldRun(id);
      using stop = firstToAbort(signal, this.#options.closing, killed);
      const handle = await SandboxHandle.attachPersistent(this.#options.sandboxStores, id, {
        patienceMs: handoverTimeoutMs,
        signal: stop,
        onProgress: (progress) => {
          if (progress.phase === "waiting") this.#options.notifyServer(progress.owner, id);
        },
        ...this.callbacks(id),
      }).catch(async (error: unknown) => {
        if (isSandboxError(error, "not_found") && (await this.#checkCopy(id)) === "unknown") {
          throw this.#unknownSandbox(id);
        }
        throw error;
      });
      await this.#assertNotKeptElsewhere(handle);
      await this.#makeReady(handle, { leaseMs: performance.now() - startedMs, signal: killed });
      if (before !== undefined && before.id !== this.#options.self().id) this.#options.notifyServer(before, id);
    });
  }

  /**
   * Throws if this server could not run the sandbox, as far as is known, so that no other server stops it in vain.
   * Returns the server that has it.
   */
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
   * Throws if the sandbox has failed on another server, where its files are. Only when that server is silent does
   * another one continue from what is stored.
   */
  async #assertNotKeptElsewhere(handle: SandboxHandle): Promise<void> {
    const { id, metadata, wasReleased } = handle;
    const { failure, server } = metadata;
    if (failure === undefined || server.id === this.#options.self().id || !wasReleased) return;
    await handle.release().catch(() => undefined);
    this.#options.metadataCache.forget(id);
    this.#options.notifyServer(server, id);
    throw new SandboxError(
      "invalid_state",
      `Cannot acquire sandbox ${id}: it has failed on server ${server.id}: ${failure.message}`,
      {
        suggestion:
          `Its files are kept there: ask ${server.url} to resume it without memory, to take a snapshot of it or to ` +
          "roll it back, or kill it, here or there.",
        details: { sandboxId: id, state: "failed", reason: failure, server },
      },
    );
  }

  async #makeReady(
    handle: SandboxHandle,
    { leaseMs, signal }: { leaseMs: number; signal?: AbortSignal },
  ): Promise<void> {
    const { id } = handle;
    try {
      const startedMs = performance.now();
      const { copies, checkpoints } = this.#options;
      const isOutdated = (await copies.statusOf(handle.metadata)) === "outdated";
      if (isOutdated && !(await checkpoints.storeLeftBehind(id))) throw leftBehindHere(id);
      const { managed, status } = await copies.ensureCurrent(handle, { signal });
      await this.own(handle);
      if (status === "live") await checkpoints.recordRollback(handle, managed);
      await managed.restoreCommands();
      this.#options.owned.markReady(handle);
      this.#options.metadataCache.forget(id);
      this.#phases.set(id, { lease: leaseMs, download: performance.now() - startedMs });
      const { state } = managed.sandbox;
      if (state === "running") managed.clock.start();
      if (status === "live" && state === "paused") await this.#completePause(managed.sandbox);
      if (status === "live" && state === "failed") this.#options.handovers.recordFailure(id);
      if (status !== "live" && state === "paused" && handle.metadata.state !== "paused") await this.#options.resume(id);
    } catch (error) {
      await this.runDeadlines.stop(id);
      this.#options.owned.remove(handle);
      const isHere = this.#options.copies.find(id) !== undefined;
      await this.#releaseAfterFailure(handle, { isHere });
      if (isHere) this.reconcile(id, retries.longestMs);
      throw error;
    }
  }

  /**
   * Releases the lease after a failed acquisition. A sandbox that only this server has is not released, because others
   * would continue from an older state. And a running sandbox may not know yet that it must stop; it stops by itself
   * when the lease expires. Until then only this server can have it again.
   */
  async #releaseAfterFailure(handle: SandboxHandle, { isHere }: { isHere: boolean }): Promise<void> {
    const { state, server } = handle.metadata;
    if (isHere && state === "running" && server.id === this.#options.self().id) handle.abandon();
    else await handle.release().catch(() => undefined);
  }

  /** Completes a pause that an earlier process of this server began, and whose checkpoint only this server has. */
  async #completePause(sandbox: Sandbox): Promise<void> {
    const { handovers } = this.#options;
    if (await isStoppedForHandOver(sandbox)) handovers.completeHandOver(sandbox.id);
    else handovers.resumeStoring(sandbox.id);
  }

  /**
   * Finds out whether the local copy belongs to this server, and acquires it, leaves it or drops it. It is retried
   * until that is known.
   */
  reconcile(id: SandboxId, afterMs = 0): void {
    if (this.#reconciling.has(id)) return;
    this.#reconciling.add(id);
    const { inBackground, owned, log } = this.#options;
    const onFailure = (error: unknown): void => {
      log.warn({ err: error, sandboxId: id }, "local copy not reconciled yet");
    };
    inBackground("reconciliation", id, (signal) =>
      retryUntilDone({ ...retries, afterMs, signal, onFailure }, () =>
        owned.inTurn(id, () => this.#tryReconcile(id, signal)),
      ).finally(() => this.#reconciling.delete(id)),
    );
  }

  /**
   * Returns false if the copy belongs to this server, but its lease is not available yet; or if it does not, and the
   * store does not accept what a rollback left behind here.
   */
  async #tryReconcile(id: SandboxId, signal: AbortSignal): Promise<boolean> {
    const { sandboxStores } = this.#options;
    if (this.#options.owned.has(id) || this.#options.copies.find(id) === undefined) return true;
    const metadata = await SandboxHandle.read(sandboxStores, id, signal);
    if (metadata === undefined || metadata.isKilled) {
      await this.#checkCopy(id, metadata);
      return true;
    }
    this.#unknown.delete(id);
    const status = await this.#options.copies.statusOf(metadata);
    if (status === "outdated") {
      if (!(await this.#options.checkpoints.storeLeftBehind(id))) return false;
      await this.#options.copies.drop(id, `server ${metadata.server.id} continued it`);
      return true;
    }
    this.#options.handovers.storeLeftBehind(id);
    // A container that runs in this very directory is not a copy. A sandbox that does not run may be a copy of one
    // whose server is only away: it stays as it is until a request asks for it here.
    const isOurs = status === "live" || (status === "inherited" && this.#options.engine.get(id).state === "running");
    // The sandbox ran here until another server asked for it, which has not acquired it so far.
    const isWaiting =
      status === "same" && metadata.state === "moving" && metadata.server.id === this.#options.self().id;
    if (!isOurs && !isWaiting) return true;
    try {
      const handle = await SandboxHandle.attachPersistent(sandboxStores, id, {
        patienceMs: 0,
        signal,
        ...this.callbacks(id),
      });
      await this.#makeReady(handle, { leaseMs: 0 });
      // If the lease was lost in between, this has to be tried again, because no other reconciliation is started while
      // this one runs.
      return this.#options.owned.has(id);
    } catch (error) {
      if (isSandboxError(error, "in_use")) return false;
      throw error;
    }
  }

  /**
   * Checks the copy of a sandbox that cannot be acquired. Only its own metadata say that it was killed, and then the
   * copy is dropped. Without metadata, the store may be another one, or an empty one in its place: the copy stays, and
   * is stopped.
   */
  async #checkCopy(id: SandboxId, metadata?: SandboxMetadata): Promise<"gone" | "unknown"> {
    const { sandboxStores, copies, log } = this.#options;
    const known = metadata ?? (await SandboxHandle.read(sandboxStores, id));
    if (known?.isKilled === true) await copies.drop(id, "it was killed");
    if (known !== undefined || copies.find(id) === undefined) return "gone";
    await this.runDeadlines.stop(id);
    if (this.#unknown.has(id)) return "unknown";
    this.#unknown.add(id);
    const store = sandboxStores.metadataStore?.place;
    log.error(
      { sandboxId: id, setting: "metadataStore", store },
      "nothing is stored of a persistent sandbox, so it was stopped",
    );
    return "unknown";
  }

  #unknownSandbox(id: SandboxId): SandboxError {
    const place = this.#options.sandboxStores.metadataStore?.place ?? "any store";
    return new SandboxError("unrestorable", `Cannot go on with sandbox ${id}: ${place} has no metadata of it`, {
      suggestion: "Its local copy is kept. Start this server with its previous metadataStore, or kill the sandbox.",
      details: { sandboxId: id, setting: "metadataStore" },
    });
  }

  /** Acquires a sandbox in order to kill it. Returns undefined if nothing is stored of it. */
  async attachToKill(id: SandboxId): Promise<SandboxHandle | undefined> {
    const { sandboxStores } = this.#options;
    if (sandboxStores.metadataStore === undefined) return undefined;
    try {
      return await SandboxHandle.attachPersistent(sandboxStores, id, {
        patienceMs: handoverTimeoutMs,
        signal: this.#options.closing,
        onProgress: (progress) => {
          if (progress.phase === "waiting") this.#options.notifyServer(progress.owner, id);
        },
      });
    } catch (error) {
      if (!isSandboxError(error, "not_found")) throw error;
      await this.#checkCopy(id);
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
      onLost: (loss) => this.#handleLoss(id, loss),
    };
  }

  /**
   * Handles the loss of a lease. The launcher has stopped the sandbox by now, or does so at this moment. It goes on if
   * this server is the next to have the lease.
   */
  #handleLoss(id: SandboxId, loss: LeaseLoss): void {
    const { log, emit, registry } = this.#options;
    this.#options.owned.forgetLost(id);
    void this.runDeadlines.stop(id);
    registry.get(id)?.clock.stop();
    log.error({ sandboxId: id, loss }, "lease lost");
    emit({ type: "sandbox.lease_lost", sandboxId: id, because: loss.reason });
    this.reconcile(id);
  }
}

function leftBehindHere(sandboxId: SandboxId): SandboxError {
  return new SandboxError(
    "storage_failed",
    `Cannot go on with sandbox ${sandboxId} here: an older copy is in the way`,
    {
      suggestion: "The copy has a checkpoint that is still being stored. Try again later, or ask another server.",
      details: { sandboxId },
    },
  );
}
