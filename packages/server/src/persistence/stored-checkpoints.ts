import { isDeepStrictEqual } from "node:util";
import { PhaseClock, currentCheckpoint, type Timed } from "@atoll/engine";
import {
  describeCheckpoint,
  firstToAbort,
  isSandboxError,
  SandboxError,
  type CheckpointInfo,
  type ListedCheckpoint,
  type SandboxId,
} from "@atoll/protocol";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import type { SandboxSettings } from "../manager/sandbox-settings.ts";
import type { StoredCheckpoint } from "./checkpoint-manifest.ts";
import { commandsNotKept } from "./checkpoint-refusal.ts";
import type { KillSignals } from "./kill-signals.ts";
import { readLeftBehind, writeLeftBehind, type LeftBehind } from "./left-behind.ts";
import type { OwnedLeases } from "./owned-leases.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle } from "./sandbox-handle.ts";
import { neededCheckpoints, type SandboxMetadata } from "./sandbox-metadata.ts";

export interface StoredCheckpointsOptions extends Pick<
  PersistenceOptions,
  "archive" | "sandboxStores" | "engine" | "log"
> {
  owned: OwnedLeases;
  kills: KillSignals;
  /** Aborts when the server stops. */
  closing: AbortSignal;
}

/** A rollback that was prepared. The caller calls `complete` or `abandon` at its end; a failure of either is logged. */
export interface PreparedRollback {
  /**
   * Records that the sandbox runs from this checkpoint, with these settings, in one write: if the checkpoint is stored,
   * a server that takes the sandbox over continues from it, too.
   */
  complete: (facts: SandboxSettings) => Promise<void>;
  /** Records that the rollback did not happen. */
  abandon: () => Promise<void>;
  /** The time that fetching the checkpoint took. */
  timed: Timed;
}

/**
 * The checkpoints of persistent sandboxes, here and in the store. The checkpoints that the metadata name stay in the
 * store, whatever collectors do.
 */
export class StoredCheckpoints {
  readonly #options: StoredCheckpointsOptions;

  constructor(options: StoredCheckpointsOptions) {
    this.#options = options;
  }

  /**
   * Pins a stored checkpoint until the metadata have another `checkpoint`, or no `wanted` one. Returns undefined if it
   * is not there. The metadata are written first, then the manifest is renewed: a collector that has read the metadata
   * before that removes nothing, however late it is.
   */
  async pin(handle: SandboxHandle, n: number): Promise<StoredCheckpoint | undefined> {
    const { archive } = this.#options;
    const { id, metadata } = handle;
    const stored = await archive?.find(id, n);
    if (stored === undefined || metadata.checkpoint?.n === n) return stored;
    await handle.write({ wanted: n });
    if ((await archive?.renew(id, n)) === true) return stored;
    await handle.write({ wanted: undefined });
    return undefined;
  }

  /** Returns all checkpoints, here and in the store, the oldest first. */
  async list(id: SandboxId): Promise<ListedCheckpoint[]> {
    const { archive, engine } = this.#options;
    const [here, stored = []] = await Promise.all([engine.checkpoints(id), archive?.list(id)]);
    const isSame = (one: CheckpointInfo) => (two: CheckpointInfo) => isSameCheckpoint(one, two);
    const storedInfos = stored.map(({ manifest }) => describeCheckpoint(manifest));
    const listed = [
      ...here.map((info) => ({ ...info, local: true, stored: storedInfos.some(isSame(info)) })),
      ...storedInfos
        .filter(({ n }) => !here.some((info) => info.n === n))
        .map((info) => ({ ...info, local: false, stored: true })),
    ];
    return listed.toSorted((one, two) => one.n - two.n);
  }

  /**
   * Prepares a rollback inside the sandbox's queue: a checkpoint that is not here is fetched and verified, while the
   * sandbox goes on. When it rejects, nothing has changed. A rollback to a local checkpoint works without the store as
   * well, but other servers then do not know of it.
   */
  async prepareRollback(id: SandboxId, n: number): Promise<PreparedRollback> {
    const { owned, engine } = this.#options;
    const handle = owned.find(id);
    const here = (await engine.checkpoints(id)).find((checkpoint) => checkpoint.n === n);
    const clock = new PhaseClock();
    let stored: StoredCheckpoint | undefined;
    const logFailure = (work: () => Promise<void>): Promise<void> => this.#logFailure(id, n, work);
    const abandon = (): Promise<void> =>
      logFailure(async () => {
        if (handle.metadata.wanted !== undefined) await handle.write({ wanted: undefined });
      });
    if (here !== undefined) {
      await logFailure(async () => {
        const pinned = await this.pin(handle, n);
        if (pinned !== undefined && isSameCheckpoint(pinned.manifest, here)) stored = pinned;
      });
    } else {
      stored = await this.#fetch(handle, n, clock).catch(async (error: unknown) => {
        await abandon();
        throw error;
      });
    }
    const complete = (facts: SandboxSettings): Promise<void> =>
      logFailure(() => handle.write({ facts, wanted: undefined, ...placeOf(stored) }));
    return { complete, abandon, timed: clock };
  }

  async #fetch(handle: SandboxHandle, n: number, clock: PhaseClock): Promise<StoredCheckpoint> {
    const { archive, engine, kills, closing } = this.#options;
    const { id } = handle;
    const stored = await this.pin(handle, n);
    if (stored === undefined || archive === undefined) throw await this.#notThere(id, n);
    const { manifest } = stored;
    if (manifest.owner === undefined) throw commandsNotKept(id, n);
    await engine.assertCouldRun(engine.get(id).record, manifest, { checkpoint: n });
    await kills.unlessKilled(id, async (killed) => {
      using signal = firstToAbort(handle.signal, closing, killed);
      await archive.fetchMore(id, n, { signal, clock });
    });
    return stored;
  }

  async #logFailure(id: SandboxId, n: number, work: () => Promise<void>): Promise<void> {
    await work().catch((error: unknown) => {
      this.#options.log.warn({ err: error, sandboxId: id, checkpoint: n }, "rollback not written to the stores");
    });
  }

  async #notThere(id: SandboxId, n: number): Promise<SandboxError> {
    const known = (await this.list(id)).map((checkpoint) => checkpoint.n);
    const { fromServer } = this.#options.owned.find(id).metadata.takenOver ?? {};
    // The number was given out, and its checkpoint may be on that server's disk alone.
    const elsewhere =
      fromServer === undefined
        ? ""
        : ` Server ${fromServer.id} (${fromServer.url}) stores the checkpoints that are only on its disk after it is ` +
          "started again.";
    return new SandboxError("not_found", `Cannot roll back sandbox ${id}: it has no checkpoint ${n}`, {
      suggestion: `It has ${known.join(", ") || "none"}.${elsewhere}`,
      details: { sandboxId: id, checkpoint: n },
    });
  }

  /**
   * Records the outcome of a rollback after this server has acquired the sandbox again, because an earlier process may
   * have crashed in the middle. From now on the metadata say what was found here: the sandbox was rolled back, or it
   * was not.
   */
  async recordRollback(handle: SandboxHandle, { sandbox, facts }: ManagedSandbox): Promise<void> {
    const { wanted, facts: recorded } = handle.metadata;
    const rollbacks = Math.max(facts.rollbacks ?? 0, recorded.rollbacks ?? 0);
    if (wanted === undefined && rollbacks === (recorded.rollbacks ?? 0)) return;
    const isThere = wanted !== undefined && currentCheckpoint(sandbox.record) === wanted;
    const stored = isThere ? await this.#options.archive?.find(handle.id, wanted) : undefined;
    await handle.write({ facts: { ...recorded, rollbacks }, wanted: undefined, ...placeOf(stored) });
  }

  /**
   * Records that the checkpoint of what a rollback leaves behind is to be stored, even after a crash. It is called
   * before the rollback.
   */
  async recordLeftBehind(handle: SandboxHandle, n: number): Promise<void> {
    const sandbox = this.#options.engine.get(handle.id);
    const isReserved = n < handle.metadata.nextCheckpoint;
    const noted = (await readLeftBehind(sandbox)).filter((left) => left.n !== n);
    await writeLeftBehind(sandbox, [...noted, isReserved ? { n, epoch: handle.epoch } : { n }]);
  }

  /**
   * Stores what rollbacks left behind here, inside the sandbox's queue, with or without its lease. Returns false if
   * some of it could not be stored: that stays recorded, and the local copy must not be dropped before this was called
   * again.
   */
  async storeLeftBehind(id: SandboxId): Promise<boolean> {
    const { engine, log } = this.#options;
    const sandbox = engine.get(id);
    const noted = await readLeftBehind(sandbox);
    const unstored: LeftBehind[] = [];
    for (const given of noted) {
      let left = given;
      try {
        // The rollback failed before this checkpoint was made, or the checkpoint was removed since.
        if (!(await engine.checkpoints(id)).some(({ n }) => n === left.n)) continue;
        const epoch = left.epoch ?? (await this.#reserveLate(id, left.n));
        left = { n: left.n, epoch };
        await this.#publish(id, left.n, epoch);
      } catch (error) {
        log.warn({ err: error, sandboxId: id, checkpoint: left.n }, "checkpoint left behind not stored");
        if (!isFinal(error)) unstored.push(left);
      }
    }
    if (!isDeepStrictEqual(unstored, noted)) await writeLeftBehind(sandbox, unstored);
    return unstored.length === 0;
  }

  /**
   * Reserves the number of a checkpoint that could not be reserved when it was made. Rejects with `conflict` when
   * another server may have used the number since.
   */
  async #reserveLate(id: SandboxId, n: number): Promise<number> {
    const handle = this.#options.owned.get(id);
    if (handle === undefined) throw numberNotReserved(id, n);
    if (n >= handle.metadata.nextCheckpoint) await handle.write({ nextCheckpoint: n + 1 });
    return handle.epoch;
  }

  async #publish(id: SandboxId, n: number, epoch: number): Promise<void> {
    const { archive, owned, kills, closing } = this.#options;
    await kills.unlessKilled(id, async (killed) => {
      using signal = firstToAbort(owned.get(id)?.signal, closing, killed);
      await archive?.publish(id, n, { epoch, signal });
    });
  }

  /**
   * Removes a checkpoint inside the sandbox's queue, here and in the store. Rejects with `in_use` if the sandbox is
   * based on it, here or for other servers.
   */
  async remove(id: SandboxId, n: number, removeHere: () => Promise<boolean>): Promise<boolean> {
    const { owned, sandboxStores, archive } = this.#options;
    const handle = owned.find(id);
    if (handle.metadata.checkpoint?.n === n) throw neededByOthers(id, n);
    // The metadata may still name the checkpoint of a rollback that failed.
    if (handle.metadata.wanted === n) await handle.write({ wanted: undefined });
    const wasHere = await removeHere();
    const mayGo = async (): Promise<boolean> => {
      const metadata = await SandboxHandle.read(sandboxStores, id);
      return metadata === undefined || !neededCheckpoints(metadata).includes(n);
    };
    const retirement = await archive?.remove(id, n, { mayGo });
    if (retirement === "kept") throw neededByOthers(id, n);
    return wasHere || retirement === "gone";
  }
}

/** Reports whether a retry cannot help: the checkpoint is damaged here, or another one has its number. */
function isFinal(error: unknown): boolean {
  return isSandboxError(error, "unrestorable") || isSandboxError(error, "conflict");
}

function placeOf(stored: StoredCheckpoint | undefined): Pick<SandboxMetadata, "checkpoint"> {
  return stored === undefined ? {} : { checkpoint: { n: stored.n, createdAtMs: stored.manifest.createdAtMs } };
}

/**
 * Returns the error for a checkpoint whose number was not reserved, because the server could not write to the store at
 * the time: another server that had the sandbox since may have used the same number.
 */
function numberNotReserved(sandboxId: SandboxId, checkpoint: number): SandboxError {
  return new SandboxError("conflict", `Cannot store checkpoint ${checkpoint}: its number was never reserved`, {
    details: { sandboxId, checkpoint },
  });
}

function neededByOthers(sandboxId: SandboxId, checkpoint: number): SandboxError {
  return new SandboxError(
    "in_use",
    `Cannot remove checkpoint ${checkpoint}: other servers would continue the sandbox from it`,
    {
      suggestion: "Pause the sandbox, which stores a newer one, or kill it.",
      details: { sandboxId, checkpoint },
    },
  );
}

/**
 * Compares two checkpoints. Numbers are given once, except where a server could not write them to the store, so the
 * time is compared, too.
 */
function isSameCheckpoint(
  one: Pick<CheckpointInfo, "n" | "createdAtMs">,
  two: Pick<CheckpointInfo, "n" | "createdAtMs">,
) {
  return one.n === two.n && one.createdAtMs === two.createdAtMs;
}
