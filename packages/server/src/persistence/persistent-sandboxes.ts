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
 * The sandboxes that outlive their server. One runs here only while this server has its lease; whoever asks for one
 * that is elsewhere, or nowhere, gets it here: its server is asked for it, or it is taken over when that one has gone
 * silent for long enough.
 */
export class PersistentSandboxes {
  /** How often each of their events was told. */
  readonly moves = new Map<string, number>();
  readonly checkpoints: StoredCheckpoints;
  readonly #options: PersistenceOptions;
  readonly #owned = new OwnedLeases();
  readonly #copies: LocalCopies;
  readonly #pendingAcquisitions: PendingAcquisitions;
  readonly #handovers: Handovers;
  readonly #kills: Kills;
  readonly #acquirer: SandboxAcquirer;
  readonly #metadataCache: MetadataCache;
  readonly #notifications: LeaseNotifications;
  readonly #closing = new AbortController();
  readonly #background = new Set<Promise<void>>();
  readonly #visits = new Map<SandboxId, number>();

  constructor(given: PersistenceOptions) {
    const { home } = given;
    // Whatever is done in the background listens to it, for any number of sandboxes at once.
    setMaxListeners(0, this.#closing.signal);
    const options: PersistenceOptions = {
      ...given,
      emit: (event) => {
        this.moves.set(event.type, (this.moves.get(event.type) ?? 0) + 1);
        given.emit(event);
      },
    };
    this.#options = options;
    this.#copies = new LocalCopies(options);
    this.#pendingAcquisitions = new PendingAcquisitions((id, signal) => this.#acquirer.take(id, signal));
    const shared = { ...options, owned: this.#owned, kills: new KillSignals(), closing: this.#closing.signal };
    this.checkpoints = new StoredCheckpoints(shared);
    const moving = {
      ...shared,
      checkpoints: this.checkpoints,
      copies: this.#copies,
      settle: (id: SandboxId) => this.#acquirer.settle(id),
      inBackground: this.#inBackground.bind(this),
    };
    this.#handovers = new Handovers(moving);
    this.#metadataCache = new MetadataCache({
      read: async (id) => {
        const metadata = await SandboxHandle.read(home, id);
        if (metadata?.isKilled !== true) return metadata;
        await this.#dropKilled(id);
        return undefined;
      },
    });
    this.#acquirer = new SandboxAcquirer({ ...moving, handovers: this.#handovers, metadataCache: this.#metadataCache });
    this.#kills = new Kills({ ...moving, acquirer: this.#acquirer, metadataCache: this.#metadataCache });
    options.engine.events.listen((event) => {
      if (event.type === "state" && event.to === "failed") this.#handovers.emitFailure(event.sandboxId);
    });
    this.#notifications = new LeaseNotifications((id) => {
      SandboxHandle.notify(home, id);
      this.#metadataCache.forget(id);
      // A copy may be another server's by now. What is not persistent has no lease to look at.
      if (options.registry.get(id)?.facts.persistent === true && !this.has(id)) this.#acquirer.settle(id);
    });
  }

  /** Throws `unsupported` where this server keeps none, naming the setting, and for a driver that cannot. */
  assertSupported(driver: DriverName): void {
    assertCanPersist(this.#options.home);
    if (driver === "gvisor") return;
    throw new SandboxError("unsupported", `Cannot create a persistent sandbox: driver ${driver} cannot save memory`, {
      suggestion: "Use driver gvisor.",
    });
  }

  /** Whether it is here with all that belongs to it. */
  has(id: SandboxId): boolean {
    return this.#owned.isOpen(id);
  }

  /**
   * What was here when this server started is its own again, or is dropped; what nothing is known of stays as it is.
   */
  begin(): void {
    const { registry, engine } = this.#options;
    for (const { id, facts } of registry.all()) if (facts.persistent) this.#acquirer.settle(id);
    const removed = engine.events.recent.filter((event) => event.type === "state" && event.to === "killed");
    for (const { sandboxId } of removed) this.#clearAbandonedCreate(sandboxId);
  }

  /** Of one that was found here half made. */
  #clearAbandonedCreate(id: SandboxId): void {
    const { home, self, log } = this.#options;
    if (home.metadataStore === undefined) return;
    const onFailure = (error: unknown): void => {
      log.warn({ err: error, sandboxId: id }, "metadata of a sandbox that did not start not removed");
    };
    this.#inBackground("clearing away", id, (signal) =>
      retryUntilDone({ firstMs: 1_000, longestMs: 60_000, signal, onFailure }, () =>
        this.#owned.inTurn(id, () => removeAbandonedCreate(id, { home, self, copies: this.#copies, signal })),
      ),
    );
  }

  /** Gives a new sandbox its metadata and its lease, before anybody knows of it. */
  async create(id: SandboxId, facts: SandboxSettings): Promise<void> {
    const { home, engine, self } = this.#options;
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
    const handle = await SandboxHandle.createPersistent(home, metadata, this.#acquirer.callbacks(id));
    await this.#acquirer.own(handle);
    this.#owned.open(handle);
  }

  /** Nothing came of it. */
  async discard(id: SandboxId): Promise<void> {
    const handle = this.#owned.get(id);
    if (handle === undefined) return;
    this.#owned.remove(handle);
    await handle.remove().catch((error: unknown) => {
      this.#options.log.warn({ err: error, sandboxId: id }, "metadata of a sandbox that did not start not removed");
    });
  }

  /**
   * What is known of one that this server does not have. Costs one read at most; rejects with `unavailable` when the
   * store cannot be read.
   */
  async locate(id: SandboxId): Promise<void> {
    if (this.has(id)) return;
    const metadata = await this.#metadataCache.look(id);
    if (metadata === undefined || this.has(id)) return;
    if (this.#copies.find(id) !== undefined && (await this.#copies.judge(metadata)) === "outdated")
      this.#acquirer.settle(id);
  }

  /** As last met. */
  settingsOf(id: SandboxId): SandboxSettings | undefined {
    return this.has(id) ? undefined : this.#metadataCache.recall(id)?.facts;
  }

  /** As far as it is known without asking the stores. */
  ownerOf(id: SandboxId): string | undefined {
    return (this.#owned.get(id)?.metadata ?? this.#metadataCache.recall(id))?.facts.owner;
  }

  infoOf(id: SandboxId): SandboxInfo | undefined {
    if (this.has(id)) return undefined;
    const metadata = this.#metadataCache.recall(id);
    return metadata === undefined ? undefined : infoFrom(metadata, { isArriving: this.#pendingAcquisitions.has(id) });
  }

  locationOf(id: SandboxId): Pick<SandboxInfo, "server" | "takenOver"> {
    const handle = this.#owned.get(id);
    if (handle === undefined) return {};
    const { takenOver } = handle.metadata;
    return { server: this.#options.self(), ...(takenOver === undefined ? {} : { takenOver }) };
  }

  /** Brings it here if it is not, as it is: one that runs elsewhere runs here then, one that is paused stays so. */
  async bring(id: SandboxId, signal: AbortSignal): Promise<void> {
    if (!this.has(id)) await this.#pendingAcquisitions.await(id, signal);
  }

  /** Somebody looks at it: this server does not give it back, unless it is asked to, until the result is called. */
  retain(id: SandboxId): () => void {
    this.#visits.set(id, (this.#visits.get(id) ?? 0) + 1);
    let isIn = true;
    return () => {
      if (isIn) this.#leave(id);
      isIn = false;
    };
  }

  /**
   * Work on one that this server has, which neither a pause nor a hand-over comes between. What was given back while
   * the turn was waited for is brought here again, as it is.
   */
  inTurn<T>(id: SandboxId, work: () => Promise<T>): Promise<T> {
    return this.#owned.inTurn(id, async () => {
      await this.#acquirer.acquireInTurn(id);
      return work();
    });
  }

  /** Of those that were paused and stored here: whether that is all there is to know, as last met. */
  isSame(id: SandboxId): boolean {
    const record = this.#options.registry.get(id)?.sandbox.record;
    const metadata = this.#metadataCache.recall(id);
    if (record?.state !== "paused" || metadata === undefined || metadata.state === "running") return false;
    return metadata.checkpoint?.n === record.checkpoint;
  }

  /**
   * For one whose turn it is and which was to run afterwards, and does not: what is here of it and nowhere else is
   * stored, or told.
   */
  fellShort(id: SandboxId): void {
    this.#handovers.resumeStoring(id);
    this.#handovers.emitFailure(id);
  }

  /** A rollback is over: what it left behind is stored, if anything. Nobody waits for it. */
  storeLeftBehind(id: SandboxId): void {
    this.#handovers.storeLeftBehind(id);
  }

  /** For one whose turn it is. */
  pauseInTurn(id: SandboxId, options: { force: boolean }): Promise<PauseResult> {
    return this.#handovers.pauseInTurn(id, options);
  }

  /** For whoever would not bring it here to pause it: one that this server does not have is refused. */
  pauseIfHere(id: SandboxId, options: { force: boolean }): Promise<PauseResult> {
    return this.#owned.inTurn(id, () => this.pauseInTurn(id, options));
  }

  /** Writes down that this server runs it, from what, before it does. The result takes that back. */
  async willRun(id: SandboxId, from: { checkpoint?: number; memory?: boolean } = {}): Promise<() => Promise<void>> {
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
    const overtaken =
      state === "running" && checkpoint !== undefined
        ? { fromServer: server, checkpoint: checkpoint.n, createdAtMs: checkpoint.createdAtMs, takenAtMs: Date.now() }
        : undefined;
    await handle.write({
      state: "running",
      server: self(),
      needs,
      nextCheckpoint: nextCheckpoint + 1,
      takenOver: overtaken ?? takenOver,
      failure: undefined,
    });
    if (overtaken !== undefined) this.#options.emit({ type: "sandbox.taken_over", sandboxId: id, ...overtaken });
    return () => handle.write({ state, server, needs: neededBefore, takenOver, failure });
  }

  /** The number of the next checkpoint of one that runs here, which no other server will use. */
  async reserve(id: SandboxId): Promise<number> {
    return this.#handovers.reserve(this.#owned.find(id));
  }

  /** The same for what a rollback is about to leave behind. */
  async reserveLeft(id: SandboxId): Promise<number> {
    const n = await this.reserve(id);
    await this.checkpoints.noteLeftBehind(this.#owned.find(id), n);
    return n;
  }

  /** Of the way here, once. */
  acquirePhases(id: SandboxId): PhaseTimes {
    return this.#acquirer.acquirePhases(id);
  }

  /** When it last began to run is not worth a write: whoever runs it next begins anew. */
  async storeSettings(id: SandboxId, facts: SandboxSettings): Promise<void> {
    const handle = this.#owned.find(id);
    const { resumedAtMs } = facts;
    if (JSON.stringify({ ...handle.metadata.facts, resumedAtMs }) === JSON.stringify({ ...facts, resumedAtMs })) return;
    await handle.write({ facts });
  }

  /** Ends it, wherever it is, and removes all that is stored of it. False: there is none. */
  kill(id: SandboxId, reason: EndReason): Promise<boolean> {
    return this.#kills.kill(id, reason);
  }

  /** It was killed on another server: no request finds it here any more. */
  async #dropKilled(id: SandboxId): Promise<void> {
    if (this.#copies.find(id) === undefined) return;
    await this.#owned.inTurn(id, () => this.#copies.drop(id, "it was killed"));
  }

  /** Another server says that there is something to see. */
  notify(id: SandboxId): void {
    this.#notifications.take(id);
  }

  /** Removes what is here of it, and nothing that is stored. */
  async drop(id: SandboxId, because: string): Promise<void> {
    await this.#copies.drop(id, because);
  }

  /** Nothing is begun any more. What runs goes on for the next process of this server, as long as its lease lasts. */
  async close(): Promise<void> {
    this.#closing.abort(new SandboxError("unavailable", "Cannot go on: the server stops"));
    await Promise.allSettled(this.#background);
    for (const handle of this.#owned.all()) handle.abandon();
  }

  #leave(id: SandboxId): void {
    const left = (this.#visits.get(id) ?? 1) - 1;
    if (left > 0) this.#visits.set(id, left);
    else this.#visits.delete(id);
    const handle = this.#owned.get(id);
    if (left > 0 || handle === undefined || this.#closing.signal.aborted) return;
    if (this.#options.registry.get(id)?.sandbox.state !== "paused") return;
    this.#inBackground("give back", id, () => this.#owned.inTurn(id, () => this.#rest(id)));
  }

  /** One that was only looked at, and is stored as it is, is anybody's again. */
  async #rest(id: SandboxId): Promise<void> {
    const handle = this.#owned.get(id);
    const record = this.#options.registry.get(id)?.sandbox.record;
    if (handle === undefined || this.#visits.has(id) || record?.state !== "paused") return;
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
