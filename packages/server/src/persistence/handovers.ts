import { addUp, PhaseClock, type PauseResult, type Timed } from "@atoll/engine";
import { firstToAbort, isSandboxError, SandboxError, type EndedProcess, type SandboxId } from "@atoll/protocol";
import type { LeaseParty } from "@atoll/storage";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import { retryUntilDone } from "../support/retry-until-done.ts";
import { markHandOver, unmarkHandOver } from "./handover-mark.ts";
import type { KillSignals } from "./kill-signals.ts";
import type { LocalCopies } from "./local-copies.ts";
import type { OwnedLeases } from "./owned-leases.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import type { SandboxHandle } from "./sandbox-handle.ts";
import type { StoredCheckpoints } from "./stored-checkpoints.ts";

export interface HandoversOptions extends PersistenceOptions {
  owned: OwnedLeases;
  checkpoints: Pick<StoredCheckpoints, "pin" | "storeLeftBehind" | "recordRollback">;
  copies: LocalCopies;
  kills: KillSignals;
  /** Aborts when the server stops. */
  closing: AbortSignal;
  /** Runs work that no request waits for; the signal is `closing`. */
  inBackground: (what: string, id: SandboxId, work: (signal: AbortSignal) => Promise<void>) => void;
  /** Finds out whether the local copy belongs to this server. */
  reconcile: (id: SandboxId) => void;
}

interface HandOver {
  id: SandboxId;
  /** True if it was running before the hand-over. */
  isStopped: boolean;
  /** The processes that ended in any of the attempts. */
  ended: EndedProcess[];
}

const retries = { firstMs: 500, longestMs: 30_000 };

/**
 * Stores persistent sandboxes where any server finds them, and releases their leases. No lease is released before its
 * sandbox is stored.
 */
export class Handovers {
  readonly #options: HandoversOptions;
  readonly #storingLeftBehind = new Set<SandboxId>();

  constructor(options: HandoversOptions) {
    this.#options = options;
  }

  /**
   * Pauses and stores a sandbox inside its queue; any server may acquire it then. Rejects with `storage_failed` when
   * the store fails: the sandbox is paused here, this server keeps the lease, and storing is retried.
   */
  async pauseInTurn(id: SandboxId, { force }: { force: boolean }): Promise<PauseResult> {
    const handle = this.#options.owned.find(id);
    const paused = await this.#save(handle, this.#options.registry.find(id), { force, isForOther: false });
    try {
      const stored = await this.#store(handle, "paused");
      await this.#release(handle);
      return { ...paused, ...addUp([paused, stored]) };
    } catch (error) {
      this.#storeLater(id);
      throw isSandboxError(error, "sandbox_ended") ? error : notStored(id, paused, error);
    }
  }

  /** Stores a sandbox that is paused here and not stored, and retries until it succeeds. */
  resumeStoring(id: SandboxId): void {
    this.#storeLater(id);
  }

  /** Stores the checkpoints that rollbacks left behind, in the background, and retries until it succeeds. */
  storeLeftBehind(id: SandboxId): void {
    const { inBackground, owned, checkpoints, copies, log } = this.#options;
    if (this.#storingLeftBehind.has(id)) return;
    this.#storingLeftBehind.add(id);
    const onFailure = (error: unknown): void => {
      log.warn({ err: error, sandboxId: id }, "checkpoints left behind not stored yet");
    };
    const store = async (): Promise<boolean> => copies.find(id) === undefined || checkpoints.storeLeftBehind(id);
    inBackground("storing what was left behind", id, (signal) =>
      retryUntilDone({ ...retries, signal, onFailure }, () => owned.inTurn(id, store)).finally(() =>
        this.#storingLeftBehind.delete(id),
      ),
    );
  }

  /** Records the failure of a sandbox with unstored data in its metadata, so that every server reports it. */
  recordFailure(id: SandboxId): void {
    const { inBackground, owned } = this.#options;
    inBackground("recording the failure", id, () =>
      owned.inTurn(id, async () => {
        const handle = owned.get(id);
        if (handle !== undefined) await this.#writeFailure(handle);
      }),
    );
  }

  /**
   * Hands a sandbox over to the server that asked for it: it is paused and stored whatever it does. Failures are
   * retried while a server waits for it; when none waits any more, it goes on here. A sandbox that has failed stays
   * here.
   */
  handOver(id: SandboxId, waiter: LeaseParty): void {
    this.#begin({ id, isStopped: false, ended: [] }, waiter);
  }

  /**
   * Completes a hand-over that an earlier process of this server began: a server that still waits gets the sandbox, and
   * otherwise it goes on here.
   */
  completeHandOver(id: SandboxId): void {
    this.#begin({ id, isStopped: true, ended: [] });
  }

  #begin(handover: HandOver, waiter?: LeaseParty): void {
    const { inBackground, owned, log } = this.#options;
    const { id } = handover;
    const onFailure = (error: unknown): void => {
      log.warn({ err: error, sandboxId: id, waiter }, "sandbox not handed over");
    };
    inBackground("hand-over", id, (signal) =>
      retryUntilDone({ ...retries, signal, onFailure }, async () => {
        await owned.inTurn(id, () => this.#handOver(handover));
        return true;
      }),
    );
  }

  async #handOver(handover: HandOver): Promise<void> {
    const { owned, copies, checkpoints, registry, reconcile, emit, log } = this.#options;
    const { id, ended } = handover;
    const handle = owned.get(id);
    if (handle === undefined || (await this.#waiterFor(handle, handover)) === undefined) return;
    const managed = registry.find(id);
    let timed: Timed = { phases: {}, totalMs: 0 };
    if (managed.sandbox.state === "running") {
      const paused = await this.#save(handle, managed, { force: true, isForOther: true });
      handover.ended.push(...paused.ended.map(describeProcess));
      handover.isStopped = true;
      timed = paused;
    }
    if ((await this.#waiterFor(handle, handover)) === undefined) return;
    const { record } = managed.sandbox;
    if (record.state === "paused" && !isStored(handle, record.checkpoint)) {
      timed = addUp([timed, await this.#store(handle, "moving")]);
    }
    const isFailed = await this.#writeFailure(handle);
    const waiter = await this.#waiterFor(handle, handover);
    if (waiter === undefined) return;
    if (isFailed) return this.#keep(handle, waiter);
    if (handle.metadata.state === "running") throw new Error(`A ${record.state} sandbox cannot be handed over`);
    await this.#release(handle);
    this.#options.notifyServer(waiter, id);
    const { checkpoint } = handle.metadata;
    const { phases, totalMs } = timed;
    if (checkpoint !== undefined) {
      emit({ type: "sandbox.handed_over", sandboxId: id, toServer: waiter, checkpoint: checkpoint.n, phases, ended });
    }
    log.info({ sandboxId: id, waiter, phases, totalMs, ended }, "sandbox handed over");
    if (await checkpoints.storeLeftBehind(id)) await copies.drop(id, `server ${waiter.id} asked for it`);
    // The copy is dropped when all of it is stored.
    else reconcile(id);
  }

  /** Returns the server that waits. If there is none, a sandbox that was stopped for it is resumed. */
  async #waiterFor(handle: SandboxHandle, { id, isStopped }: HandOver): Promise<LeaseParty | undefined> {
    const waiter = await handle.findWaiter();
    if (waiter !== undefined) return waiter;
    const { owned, registry, resume, log } = this.#options;
    log.info({ sandboxId: id }, "no server waits for the sandbox any more");
    if (isStopped && owned.has(id) && registry.get(id)?.sandbox.state === "paused") await resume(id);
    return undefined;
  }

  /**
   * Keeps a failed sandbox here, because its files are only here. The lease is released for a moment: the server that
   * asks sees why it failed, and may kill it.
   */
  async #keep(handle: SandboxHandle, waiter: LeaseParty): Promise<void> {
    const { id } = handle;
    await this.#release(handle);
    this.#options.notifyServer(waiter, id);
    this.#options.log.info({ sandboxId: id, waiter }, "failed sandbox kept, not handed over");
    this.#options.reconcile(id);
  }

  /** Returns true if the sandbox has failed with unstored data; then its metadata say so. */
  async #writeFailure(handle: SandboxHandle): Promise<boolean> {
    const record = this.#options.registry.get(handle.id)?.sandbox.record;
    const { state, failure } = handle.metadata;
    if (record?.state !== "failed" || state !== "running") return false;
    if (failure === undefined) await handle.write({ failure: record.reason });
    return true;
  }

  async #save(
    handle: SandboxHandle,
    managed: ManagedSandbox,
    { force, isForOther }: { force: boolean; isForOther: boolean },
  ): Promise<PauseResult> {
    const checkpoint = await this.reserve(handle);
    await (isForOther ? markHandOver(managed.sandbox, checkpoint) : unmarkHandOver(managed.sandbox));
    const paused = await this.#options.engine.pause(managed.id, { force, checkpoint });
    managed.clock.stop();
    return paused;
  }

  /** Reserves the number of its next checkpoint, which no other server will use. */
  async reserve(handle: SandboxHandle): Promise<number> {
    const { engine, log } = this.#options;
    const { nextCheckpoint } = handle.metadata;
    const n = Math.max(nextCheckpoint - 1, await engine.nextCheckpoint(handle.id));
    // If the store fails now, the checkpoint cannot be published under this number before the number is written there.
    if (n >= nextCheckpoint) {
      await handle.write({ nextCheckpoint: n + 1 }).catch((error: unknown) => {
        log.warn({ err: error, sandboxId: handle.id, checkpoint: n }, "number of a checkpoint not reserved");
      });
    }
    return n;
  }

  async #store(handle: SandboxHandle, state: "paused" | "moving"): Promise<Timed> {
    const { archive, engine, registry } = this.#options;
    const clock = new PhaseClock();
    const { id } = handle;
    const managed = registry.find(id);
    const { record } = managed.sandbox;
    if (record.state !== "paused" || archive === undefined) {
      throw new Error(`A ${record.state} sandbox cannot be stored`);
    }
    const n = record.checkpoint;
    // An earlier rollback may not have been written to the metadata.
    await this.#options.checkpoints.recordRollback(handle, managed);
    // From here on no other server uses this number.
    if (n >= handle.metadata.nextCheckpoint) await handle.write({ nextCheckpoint: n + 1 });
    // The newest checkpoint is kept by itself. An earlier one, as a failed rollback leaves it, may have expired.
    if (n < handle.metadata.nextCheckpoint - 1) await this.#options.checkpoints.pin(handle, n);
    await this.#options.kills.unlessKilled(id, async (killed) => {
      using signal = firstToAbort(handle.signal, this.#options.closing, killed);
      await archive.publish(id, n, { epoch: handle.epoch, signal, clock });
    });
    const saved = (await engine.checkpoints(id)).find((checkpoint) => checkpoint.n === n);
    if (saved === undefined) throw new Error(`Checkpoint ${n} of sandbox ${id} is gone`);
    await handle.write({
      state,
      checkpoint: { n, createdAtMs: saved.createdAtMs },
      runningCommands: managed.commands.runningCount,
      wanted: undefined,
    });
    clock.lap("metadata");
    if (!(await this.#options.checkpoints.storeLeftBehind(id))) this.storeLeftBehind(id);
    clock.lap("upload");
    return clock;
  }

  async #release(handle: SandboxHandle): Promise<void> {
    this.#options.owned.remove(handle);
    await handle.release().catch((error: unknown) => {
      this.#options.log.warn({ err: error, sandboxId: handle.id }, "lease not released; it expires");
    });
  }

  #storeLater(id: SandboxId): void {
    const { inBackground, owned, registry, log } = this.#options;
    const onFailure = (error: unknown): void => {
      log.warn({ err: error, sandboxId: id }, "paused sandbox not stored yet");
    };
    inBackground("store", id, (signal) =>
      retryUntilDone({ ...retries, afterMs: retries.firstMs, signal, onFailure }, () =>
        owned.inTurn(id, async () => {
          const handle = owned.get(id);
          if (handle === undefined || registry.get(id)?.sandbox.state !== "paused") return true;
          await this.#store(handle, "paused");
          await this.#release(handle);
          return true;
        }),
      ),
    );
  }
}

function describeProcess({ pid, command }: EndedProcess): EndedProcess {
  return { pid, command };
}

function isStored({ metadata }: SandboxHandle, n: number): boolean {
  return metadata.state !== "running" && metadata.checkpoint?.n === n;
}

function notStored(id: SandboxId, { checkpoint, ended }: PauseResult, cause: unknown): SandboxError {
  const because = cause instanceof Error ? cause.message : String(cause);
  return new SandboxError(
    "storage_failed",
    `Cannot store sandbox ${id}: it is paused here, as checkpoint ${checkpoint}, and not yet stored: ${because}`,
    {
      suggestion:
        "This server keeps it, retries, and can resume it. Until then it is only here: a server that takes the " +
        "sandbox over, because this one is away for longer than its lease, continues from what was stored before.",
      details: { sandboxId: id, checkpoint, ended: ended.map(describeProcess) },
      cause,
    },
  );
}
