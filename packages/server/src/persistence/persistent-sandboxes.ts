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
import type { SandboxFacts } from "../manager/sandbox-facts.ts";
import { untilDone } from "../support/until-done.ts";
import { Arrivals } from "./arrivals.ts";
import { Departures } from "./departures.ts";
import { KillSignals } from "./kill-signals.ts";
import { Kills } from "./kills.ts";
import { LocalCopies } from "./local-copies.ts";
import { NudgeBox } from "./nudges.ts";
import { OwnedSandboxes } from "./owned-sandboxes.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { assertCanPersist, SandboxHandle } from "./sandbox-handle.ts";
import { importedRecordOf, infoFrom, type SandboxMetadata } from "./sandbox-metadata.ts";
import { StoredCheckpoints } from "./stored-checkpoints.ts";
import { Takings } from "./takings.ts";
import { removeUnborn } from "./unborn-sandboxes.ts";
import { Whereabouts } from "./whereabouts.ts";

/**
 * The sandboxes that outlive their server. One runs here only while this server has its lease; whoever asks for one that is elsewhere, or nowhere, gets it here: its server is asked
 * for it, or it is taken over when that one has gone silent for long enough.
 */
export class PersistentSandboxes {
  /** How often each of their events was told. */
  readonly moves = new Map<string, number>();
  readonly checkpoints: StoredCheckpoints;
  readonly #options: PersistenceOptions;
  readonly #owned = new OwnedSandboxes();
  readonly #copies: LocalCopies;
  readonly #arrivals: Arrivals;
  readonly #departures: Departures;
  readonly #kills: Kills;
  readonly #takings: Takings;
  readonly #whereabouts: Whereabouts;
  readonly #nudges: NudgeBox;
  readonly #closing = new AbortController();
  readonly #background = new Set<Promise<void>>();
  readonly #visits = new Map<SandboxId, number>();

  constructor(given: PersistenceOptions) {
    const { home } = given;
    // Whatever is done in the background listens to it, for any number of sandboxes at once.
    setMaxListeners(0, this.#closing.signal);
    const options: PersistenceOptions = {
      ...given,
      tell: (event) => {
        this.moves.set(event.type, (this.moves.get(event.type) ?? 0) + 1);
        given.tell(event);
      },
    };
    this.#options = options;
    this.#copies = new LocalCopies(options);
    this.#arrivals = new Arrivals((id, signal) => this.#takings.take(id, signal));
    const shared = { ...options, owned: this.#owned, kills: new KillSignals(), closing: this.#closing.signal };
    this.checkpoints = new StoredCheckpoints(shared);
    const moving = {
      ...shared,
      checkpoints: this.checkpoints,
      copies: this.#copies,
      settle: (id: SandboxId) => this.#takings.settle(id),
      inBackground: this.#inBackground.bind(this),
    };
    this.#departures = new Departures(moving);
    this.#whereabouts = new Whereabouts({
      read: async (id) => {
        const metadata = await SandboxHandle.read(home, id);
        if (metadata?.isKilled !== true) return metadata;
        await this.#dropKilled(id);
        return undefined;
      },
    });
    this.#takings = new Takings({ ...moving, departures: this.#departures, whereabouts: this.#whereabouts });
    this.#kills = new Kills({ ...moving, takings: this.#takings, whereabouts: this.#whereabouts });
    options.engine.events.listen((event) => {
      if (event.type === "state" && event.to === "failed") this.#departures.tellFailure(event.sandboxId);
    });
    this.#nudges = new NudgeBox((id) => {
      SandboxHandle.nudge(home, id);
      this.#whereabouts.forget(id);
      // A copy may be another server's by now. What is not persistent has no lease to look at.
      if (options.roster.get(id)?.facts.persistent === true && !this.has(id)) this.#takings.settle(id);
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

  /** What was here when this server started is its own again, or is dropped; what nothing is known of stays as it is. */
  begin(): void {
    const { roster, engine } = this.#options;
    for (const { id, facts } of roster.all()) if (facts.persistent) this.#takings.settle(id);
    const removed = engine.events.recent.filter((event) => event.type === "state" && event.to === "killed");
    for (const { sandboxId } of removed) this.#clearUnborn(sandboxId);
  }

  /** Of one that was found here half made. */
  #clearUnborn(id: SandboxId): void {
    const { home, self, log } = this.#options;
    if (home.metadataStore === undefined) return;
    const onFailure = (error: unknown): void => {
      log.warn({ err: error, sandboxId: id }, "metadata of a sandbox that did not start not removed");
    };
    this.#inBackground("clearing away", id, (signal) =>
      untilDone({ firstMs: 1_000, longestMs: 60_000, signal, onFailure }, () =>
        this.#owned.inTurn(id, () => removeUnborn(id, { home, self, copies: this.#copies, signal })),
      ),
    );
  }

  /** Gives a new sandbox its metadata and its lease, before anybody knows of it. */
  async create(id: SandboxId, facts: SandboxFacts): Promise<void> {
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
    const handle = await SandboxHandle.createPersistent(home, metadata, this.#takings.callbacks(id));
    await this.#takings.own(handle);
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

  /** What is known of one that this server does not have. Costs one read at most; rejects with `unavailable` when the store cannot be read. */
  async meet(id: SandboxId): Promise<void> {
    if (this.has(id)) return;
    const metadata = await this.#whereabouts.look(id);
    if (metadata === undefined || this.has(id)) return;
    if (this.#copies.find(id) !== undefined && (await this.#copies.judge(metadata)) === "outdated")
      this.#takings.settle(id);
  }

  /** As last met. */
  factsOf(id: SandboxId): SandboxFacts | undefined {
    return this.has(id) ? undefined : this.#whereabouts.recall(id)?.facts;
  }

  /** As far as it is known without asking the stores. */
  ownerOf(id: SandboxId): string | undefined {
    return (this.#owned.get(id)?.metadata ?? this.#whereabouts.recall(id))?.facts.owner;
  }

  infoOf(id: SandboxId): SandboxInfo | undefined {
    if (this.has(id)) return undefined;
    const metadata = this.#whereabouts.recall(id);
    return metadata === undefined ? undefined : infoFrom(metadata, { isArriving: this.#arrivals.has(id) });
  }

  whereaboutsOf(id: SandboxId): Pick<SandboxInfo, "server" | "takenOver"> {
    const handle = this.#owned.get(id);
    if (handle === undefined) return {};
    const { takenOver } = handle.metadata;
    return { server: this.#options.self(), ...(takenOver === undefined ? {} : { takenOver }) };
  }

  /** Brings it here if it is not, as it is: one that runs elsewhere runs here then, one that is paused stays so. */
  async bring(id: SandboxId, signal: AbortSignal): Promise<void> {
    if (!this.has(id)) await this.#arrivals.await(id, signal);
  }

  /** Somebody looks at it: this server does not give it back, unless it is asked to, until the result is called. */
  visit(id: SandboxId): () => void {
    this.#visits.set(id, (this.#visits.get(id) ?? 0) + 1);
    let isIn = true;
    return () => {
      if (isIn) this.#leave(id);
      isIn = false;
    };
  }

  /** Work on one that this server has, which neither a pause nor a hand-over comes between. What was given back while the turn was waited for is brought here again, as it is. */
  inTurn<T>(id: SandboxId, work: () => Promise<T>): Promise<T> {
    return this.#owned.inTurn(id, async () => {
      await this.#takings.takeInTurn(id);
      return work();
    });
  }

  /** Of those that were paused and stored here: whether that is all there is to know, as last met. */
  isSame(id: SandboxId): boolean {
    const record = this.#options.roster.get(id)?.sandbox.record;
    const metadata = this.#whereabouts.recall(id);
    if (record?.state !== "paused" || metadata === undefined || metadata.state === "running") return false;
    return metadata.checkpoint?.n === record.checkpoint;
  }

  /** For one whose turn it is and which was to run afterwards, and does not: what is here of it and nowhere else is stored, or told. */
  fellShort(id: SandboxId): void {
    this.#departures.resumeStoring(id);
    this.#departures.tellFailure(id);
  }

  /** A rollback is over: what it left behind is stored, if anything. Nobody waits for it. */
  storeLeftBehind(id: SandboxId): void {
    this.#departures.storeLeftBehind(id);
  }

  /** For one whose turn it is. */
  pauseInTurn(id: SandboxId, options: { force: boolean }): Promise<PauseResult> {
    return this.#departures.pauseInTurn(id, options);
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
    await this.#takings.permits.extend(handle);
    const needs = await engine.machineNeeds(id, from);
    if (state === "running" && server.id === self().id) {
      const isTold = failure === undefined && isDeepStrictEqual(needs, neededBefore);
      if (!isTold) await handle.write({ needs, failure: undefined });
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
    if (overtaken !== undefined) this.#options.tell({ type: "sandbox.taken_over", sandboxId: id, ...overtaken });
    return () => handle.write({ state, server, needs: neededBefore, takenOver, failure });
  }

  /** The number of the next checkpoint of one that runs here, which no other server will use. */
  async reserve(id: SandboxId): Promise<number> {
    return this.#departures.reserve(this.#owned.find(id));
  }

  /** The same for what a rollback is about to leave behind. */
  async reserveLeft(id: SandboxId): Promise<number> {
    const n = await this.reserve(id);
    await this.checkpoints.noteLeftBehind(this.#owned.find(id), n);
    return n;
  }

  /** Of the way here, once. */
  takePhases(id: SandboxId): PhaseTimes {
    return this.#takings.takePhases(id);
  }

  /** When it last began to run is not worth a write: whoever runs it next begins anew. */
  async storeFacts(id: SandboxId, facts: SandboxFacts): Promise<void> {
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
  nudge(id: SandboxId): void {
    this.#nudges.take(id);
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
    if (this.#options.roster.get(id)?.sandbox.state !== "paused") return;
    this.#inBackground("give back", id, () => this.#owned.inTurn(id, () => this.#rest(id)));
  }

  /** One that was only looked at, and is stored as it is, is anybody's again. */
  async #rest(id: SandboxId): Promise<void> {
    const handle = this.#owned.get(id);
    const record = this.#options.roster.get(id)?.sandbox.record;
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
