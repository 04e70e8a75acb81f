import { setMaxListeners } from "node:events";
import { isDeepStrictEqual } from "node:util";
import type { PauseResult } from "@atoll/engine";
import {
  SandboxError,
  type DriverName,
  type EndReason,
  type PhaseTimes,
  type SandboxId,
  type SandboxInfo,
} from "@atoll/protocol";
import type { SandboxSettings } from "../manager/sandbox-settings.ts";
import { retryUntilDone } from "../support/retry-until-done.ts";
import { removeAbandonedCreate } from "./abandoned-creates.ts";
import { Handovers } from "./handovers.ts";
import { KillSignals } from "./kill-signals.ts";
import { Kills } from "./kills.ts";
import { LeaseNotifications } from "./lease-notifications.ts";
import { LocalCopies } from "./local-copies.ts";
import { MetadataCache } from "./metadata-cache.ts";
import { OwnedLeases } from "./owned-leases.ts";
import { PendingAcquisitions } from "./pending-acquisitions.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxAcquirer } from "./sandbox-acquirer.ts";
import { assertCanPersist, SandboxHandle } from "./sandbox-handle.ts";
import { importedRecordOf, infoFrom, type SandboxMetadata } from "./sandbox-metadata.ts";
import { StoredCheckpoints } from "./stored-checkpoints.ts";

/**
 * The sandboxes that outlive their server. A sandbox runs here only while this server has its lease. A request for one
 * that is not here acquires it: its server is asked for it, or it is taken over when that server has been silent for
 * long enough.
 */
export class PersistentSandboxes {
  /** How many times each type of event was emitted. */
  readonly eventCounts = new Map<string, number>();
  readonly checkpoints: StoredCheckpoints;
  readonly #options: PersistenceOptions;
  readonly #owned = new OwnedLeases();
  readonly #copies: LocalCopies;
  readonly #pending: PendingAcquisitions;
  readonly #handovers: Handovers;
  readonly #kills: Kills;
  readonly #acquirer: SandboxAcquirer;
  readonly #metadataCache: MetadataCache;
  readonly #notifications: LeaseNotifications;
  readonly #closing = new AbortController();
  readonly #background = new Set<Promise<void>>();
  readonly #retainCounts = new Map<SandboxId, number>();

  constructor(given: PersistenceOptions) {
    const { sandboxStores } = given;
    // All background work listens to it, for any number of sandboxes at once.
    setMaxListeners(0, this.#closing.signal);
    const options: PersistenceOptions = {
      ...given,
      emit: (event) => {
        this.eventCounts.set(event.type, (this.eventCounts.get(event.type) ?? 0) + 1);
        given.emit(event);
      },
    };
    this.#options = options;
    this.#copies = new LocalCopies(options);
    this.#pending = new PendingAcquisitions((id, signal) => this.#acquirer.acquire(id, signal));
    const shared = { ...options, owned: this.#owned, kills: new KillSignals(), closing: this.#closing.signal };
    this.checkpoints = new StoredCheckpoints(shared);
    const parts = {
      ...shared,
      checkpoints: this.checkpoints,
      copies: this.#copies,
      reconcile: (id: SandboxId) => this.#acquirer.reconcile(id),
      inBackground: this.#inBackground.bind(this),
    };
    this.#handovers = new Handovers(parts);
    this.#metadataCache = new MetadataCache({
      read: async (id) => {
        const metadata = await SandboxHandle.read(sandboxStores, id);
        if (metadata?.isKilled !== true) return metadata;
        await this.#dropKilled(id);
        return undefined;
      },
    });
    this.#acquirer = new SandboxAcquirer({ ...parts, handovers: this.#handovers, metadataCache: this.#metadataCache });
    this.#kills = new Kills({ ...parts, acquirer: this.#acquirer, metadataCache: this.#metadataCache });
    options.engine.events.listen((event) => {
      if (event.type === "state" && event.to === "failed") this.#handovers.recordFailure(event.sandboxId);
    });
    this.#notifications = new LeaseNotifications((id) => {
      SandboxHandle.notify(sandboxStores, id);
      this.#metadataCache.forget(id);
      // Another server may have continued the sandbox by now. An ephemeral sandbox has no lease to look at.
      if (options.registry.get(id)?.facts.persistent === true && !this.has(id)) this.#acquirer.reconcile(id);
    });
  }

  /**
   * Throws `unsupported`, naming the setting, if this server has no stores for persistent sandboxes, or if the driver
   * cannot save memory.
   */
  assertSupported(driver: DriverName): void {
    assertCanPersist(this.#options.sandboxStores);
    if (driver === "gvisor") return;
    throw new SandboxError("unsupported", `Cannot create a persistent sandbox: driver ${driver} cannot save memory`, {
      suggestion: "Use driver gvisor.",
    });
  }

  /** True if it is here and requests may use it. */
  has(id: SandboxId): boolean {
    return this.#owned.isReady(id);
  }

  /**
   * Reconciles the copies that were here when this server started: each is acquired or dropped, and left alone if
   * nothing is known of it.
   */
  start(): void {
    const { registry, engine } = this.#options;
    for (const { id, facts } of registry.all()) if (facts.persistent) this.#acquirer.reconcile(id);
    const removed = engine.events.recent.filter((event) => event.type === "state" && event.to === "killed");
    for (const { sandboxId } of removed) this.#clearAbandonedCreate(sandboxId);
  }

  /** Removes what is stored of a sandbox whose creation was interrupted. */
  #clearAbandonedCreate(id: SandboxId): void {
    const { sandboxStores, self, log } = this.#options;
    if (sandboxStores.metadataStore === undefined) return;
    const onFailure = (error: unknown): void => {
      log.warn({ err: error, sandboxId: id }, "metadata of a sandbox that did not start not removed");
    };
    this.#inBackground("removal of an abandoned create", id, (signal) =>
      retryUntilDone({ firstMs: 1_000, longestMs: 60_000, signal, onFailure }, () =>
        this.#owned.inTurn(id, () => removeAbandonedCreate(id, { sandboxStores, self, copies: this.#copies, signal })),
      ),
    );
  }

  /** Creates the metadata and the lease of a new sandbox, before any client knows of it. */
  async create(id: SandboxId, facts: SandboxSettings): Promise<void> {
    const { sandboxStores, engine, self } = this.#options;
    const metadata: SandboxMetadata = {
      version: 1,
      id,
      facts,
      record: importedRecordOf(engine.get(id).record),
      state: "running",
      server: self(),
      needs: await engine.machineNeeds(id),
      nextCheckpoint: (await engine.nextCheckpoint(id)) + 1,
      runningCommands: 0,
      isKilled: false,
    };
    const handle = await SandboxHandle.createPersistent(sandboxStores, metadata, this.#acquirer.callbacks(id));
    await this.#acquirer.own(handle);
    this.#owned.markReady(handle);
  }

  /** Removes a sandbox whose creation failed. */
  async discard(id: SandboxId): Promise<void> {
    const handle = this.#owned.get(id);
    if (handle === undefined) return;
    this.#owned.remove(handle);
    await handle.remove().catch((error: unknown) => {
      this.#options.log.warn({ err: error, sandboxId: id }, "metadata of a sandbox that did not start not removed");
    });
  }

  /**
   * Reads the metadata of a sandbox that this server does not have. It costs at most one read, and rejects with
   * `unavailable` when the store cannot be read.
   */
  async locate(id: SandboxId): Promise<void> {
    if (this.has(id)) return;
    const metadata = await this.#metadataCache.look(id);
    if (metadata === undefined || this.has(id)) return;
    if (this.#copies.find(id) !== undefined && (await this.#copies.statusOf(metadata)) === "outdated")
      this.#acquirer.reconcile(id);
  }

  /** Returns the settings of a sandbox that is elsewhere, as last read. */
  settingsOf(id: SandboxId): SandboxSettings | undefined {
    return this.has(id) ? undefined : this.#metadataCache.recall(id)?.facts;
  }

  /** Returns the owner, as far as it is known without reading the stores. */
  ownerOf(id: SandboxId): string | undefined {
    return (this.#owned.get(id)?.metadata ?? this.#metadataCache.recall(id))?.facts.owner;
  }

  infoOf(id: SandboxId): SandboxInfo | undefined {
    if (this.has(id)) return undefined;
    const metadata = this.#metadataCache.recall(id);
    return metadata === undefined ? undefined : infoFrom(metadata, { isBeingAcquired: this.#pending.has(id) });
  }

  locationOf(id: SandboxId): Pick<SandboxInfo, "server" | "takenOver"> {
    const handle = this.#owned.get(id);
    if (handle === undefined) return {};
    const { takenOver } = handle.metadata;
    return { server: this.#options.self(), ...(takenOver === undefined ? {} : { takenOver }) };
  }

  /**
   * Acquires the sandbox if it is not here, in its state: one that runs elsewhere runs here then, and a paused one
   * stays paused.
   */
  async acquire(id: SandboxId, signal: AbortSignal): Promise<void> {
    if (!this.has(id)) await this.#pending.await(id, signal);
  }

  /**
   * Retains the sandbox: until the returned function is called, this server does not release its lease unless another
   * one asks for it.
   */
  retain(id: SandboxId): () => void {
    this.#retainCounts.set(id, (this.#retainCounts.get(id) ?? 0) + 1);
    let isRetained = true;
    return () => {
      if (isRetained) this.#unretain(id);
      isRetained = false;
    };
  }

  /**
   * Runs work on a sandbox in its queue, so that no pause and no hand-over comes in between. If the lease was released
   * while the work waited, it is acquired again.
   */
  inTurn<T>(id: SandboxId, work: () => Promise<T>): Promise<T> {
    return this.#owned.inTurn(id, async () => {
      await this.#acquirer.acquireInTurn(id);
      return work();
    });
  }

  /** True if the local copy is paused and is the checkpoint in the metadata, as last read. */
  isSame(id: SandboxId): boolean {
    const record = this.#options.registry.get(id)?.sandbox.record;
    const metadata = this.#metadataCache.recall(id);
    if (record?.state !== "paused" || metadata === undefined || metadata.state === "running") return false;
    return metadata.checkpoint?.n === record.checkpoint;
  }

  /**
   * Cleans up after a run that was prepared and failed, inside the sandbox's queue: a paused sandbox is stored, and a
   * failed one is recorded.
   */
  afterFailedRun(id: SandboxId): void {
    this.#handovers.resumeStoring(id);
    this.#handovers.recordFailure(id);
  }

  /** Stores what a rollback left behind, in the background. */
  storeLeftBehind(id: SandboxId): void {
    this.#handovers.storeLeftBehind(id);
  }

  /** Pauses a sandbox inside its queue. */
  pauseInTurn(id: SandboxId, options: { force: boolean }): Promise<PauseResult> {
    return this.#handovers.pauseInTurn(id, options);
  }

  /** Pauses a sandbox without acquiring it first: one that this server does not have is refused. */
  pauseIfHere(id: SandboxId, options: { force: boolean }): Promise<PauseResult> {
    return this.#owned.inTurn(id, () => this.pauseInTurn(id, options));
  }

  /**
   * Records in the metadata that this server is about to run the sandbox, and from which checkpoint. The returned
   * function undoes that.
   */
  async prepareToRun(
    id: SandboxId,
    from: { checkpoint?: number; memory?: boolean } = {},
  ): Promise<() => Promise<void>> {
    const { self, engine } = this.#options;
    const handle = this.#owned.find(id);
    const { state, server, needs: neededBefore, checkpoint, nextCheckpoint, takenOver, failure } = handle.metadata;
    await this.#acquirer.runDeadlines.extend(handle);
    const needs = await engine.machineNeeds(id, from);
    if (state === "running" && server.id === self().id) {
      const isStored = failure === undefined && isDeepStrictEqual(needs, neededBefore);
      if (!isStored) await handle.write({ needs, failure: undefined });
      return async () => undefined;
    }
    const takeover =
      state === "running" && checkpoint !== undefined
        ? { fromServer: server, checkpoint: checkpoint.n, createdAtMs: checkpoint.createdAtMs, takenAtMs: Date.now() }
        : undefined;
    await handle.write({
      state: "running",
      server: self(),
      needs,
      nextCheckpoint: nextCheckpoint + 1,
      takenOver: takeover ?? takenOver,
      failure: undefined,
    });
    if (takeover !== undefined) this.#options.emit({ type: "sandbox.taken_over", sandboxId: id, ...takeover });
    return () => handle.write({ state, server, needs: neededBefore, takenOver, failure });
  }

  /** Reserves the number of the next checkpoint of a sandbox that runs here. No other server will use it. */
  async reserve(id: SandboxId): Promise<number> {
    return this.#handovers.reserve(this.#owned.find(id));
  }

  /** Reserves a number for the checkpoint that a rollback is about to leave behind. */
  async reserveLeftBehind(id: SandboxId): Promise<number> {
    const n = await this.reserve(id);
    await this.checkpoints.recordLeftBehind(this.#owned.find(id), n);
    return n;
  }

  /** Returns the times of the last acquisition, once. */
  acquirePhases(id: SandboxId): PhaseTimes {
    return this.#acquirer.acquirePhases(id);
  }

  /**
   * Writes changed settings to the metadata. A change of the resume time alone is not worth a write: the next server
   * that runs the sandbox sets it again.
   */
  async storeSettings(id: SandboxId, facts: SandboxSettings): Promise<void> {
    const handle = this.#owned.find(id);
    const { resumedAtMs } = facts;
    if (JSON.stringify({ ...handle.metadata.facts, resumedAtMs }) === JSON.stringify({ ...facts, resumedAtMs })) return;
    await handle.write({ facts });
  }

  /** Kills the sandbox, wherever it is, and removes all that is stored of it. Returns false if there is none. */
  kill(id: SandboxId, reason: EndReason): Promise<boolean> {
    return this.#kills.kill(id, reason);
  }

  /** Drops the copy of a sandbox that was killed on another server. */
  async #dropKilled(id: SandboxId): Promise<void> {
    if (this.#copies.find(id) === undefined) return;
    await this.#owned.inTurn(id, () => this.#copies.drop(id, "it was killed"));
  }

  /** Handles a notification of another server. */
  notify(id: SandboxId): void {
    this.#notifications.take(id);
  }

  /** Removes the local copy, and nothing that is stored. */
  async drop(id: SandboxId, because: string): Promise<void> {
    await this.#copies.drop(id, because);
  }

  /** Starts nothing more. Running sandboxes go on for the next process of this server, as long as their lease lasts. */
  async close(): Promise<void> {
    this.#closing.abort(new SandboxError("unavailable", "Cannot go on: the server stops"));
    await Promise.allSettled(this.#background);
    for (const handle of this.#owned.all()) handle.abandon();
  }

  #unretain(id: SandboxId): void {
    const left = (this.#retainCounts.get(id) ?? 1) - 1;
    if (left > 0) this.#retainCounts.set(id, left);
    else this.#retainCounts.delete(id);
    const handle = this.#owned.get(id);
    if (left > 0 || handle === undefined || this.#closing.signal.aborted) return;
    if (this.#options.registry.get(id)?.sandbox.state !== "paused") return;
    this.#inBackground("release", id, () => this.#owned.inTurn(id, () => this.#releaseIfUnused(id)));
  }

  /** Releases the lease of a paused sandbox that is stored as it is and that no request uses. */
  async #releaseIfUnused(id: SandboxId): Promise<void> {
    const handle = this.#owned.get(id);
    const record = this.#options.registry.get(id)?.sandbox.record;
    if (handle === undefined || this.#retainCounts.has(id) || record?.state !== "paused") return;
    const { state, checkpoint } = handle.metadata;
    if (state === "running" || checkpoint?.n !== record.checkpoint) return;
    this.#owned.remove(handle);
    await handle.release();
  }

  #inBackground(what: string, id: SandboxId, work: (signal: AbortSignal) => Promise<void>): void {
    const { signal } = this.#closing;
    if (signal.aborted) return;
    const running = work(signal)
      .catch((error: unknown) => {
        if (!signal.aborted) this.#options.log.error({ err: error, sandboxId: id }, `${what} of a sandbox failed`);
      })
      .finally(() => this.#background.delete(running));
    this.#background.add(running);
  }
}
