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
import { nothingKept } from "./checkpoint-refusal.ts";
import type { KillSignals } from "./kill-signals.ts";
import { readLeftBehind, writeLeftBehind, type LeftBehind } from "./left-behind.ts";
import type { OwnedLeases } from "./owned-leases.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle } from "./sandbox-handle.ts";
import { neededCheckpoints, type SandboxMetadata } from "./sandbox-metadata.ts";

export interface StoredCheckpointsOptions extends Pick<PersistenceOptions, "archive" | "home" | "engine" | "log"> {
  owned: OwnedLeases;
  kills: KillSignals;
  /** Aborts when the server stops. */
  closing: AbortSignal;
}

/**
 * The way back to a checkpoint. One of the two is called when it is over; what they cannot write is told in the log.
 */
export interface WayBack {
  /**
   * The sandbox runs as of this checkpoint, with these facts. Both are told in one write: if the checkpoint is stored,
   * whoever takes the sandbox over goes on from there, too.
   */
  taken: (facts: SandboxSettings) => Promise<void>;
  /** Nothing came of it. */
  left: () => Promise<void>;
  /** What it took to get the checkpoint here. */
  timed: Timed;
}

/**
 * The checkpoints of persistent sandboxes, here and in the store. What the metadata need is there, whatever collectors
 * do.
 */
export class StoredCheckpoints {
  readonly #options: StoredCheckpointsOptions;

  constructor(options: StoredCheckpointsOptions) {
    this.#options = options;
  }

  /**
   * Sees to it that a checkpoint stays in the store until the metadata have another `checkpoint`, or nothing `wanted`.
   * Undefined: it is not there. The metadata say so first, then it is renewed: a collector that has asked before that
   * removes nothing, however late it is.
   */
  async claim(handle: SandboxHandle, n: number): Promise<StoredCheckpoint | undefined> {
    const { archive } = this.#options;
    const { id, metadata } = handle;
    const stored = await archive?.find(id, n);
    if (stored === undefined || metadata.checkpoint?.n === n) return stored;
    await handle.write({ wanted: n });
    if ((await archive?.renew(id, n)) === true) return stored;
    await handle.write({ wanted: undefined });
    return undefined;
  }

  /** All that there are, wherever, the oldest first. */
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
   * Before it is gone back to a checkpoint, for one whose turn it is: what is not here is fetched and verified, and the
   * sandbox does meanwhile what it did. When it rejects, nothing has changed. To one that is here it can be gone back
   * without the store as well; then nobody else goes back with it.
   */
  async wayBackTo(id: SandboxId, n: number): Promise<WayBack> {
    const { owned, engine } = this.#options;
    const handle = owned.find(id);
    const here = (await engine.checkpoints(id)).find((checkpoint) => checkpoint.n === n);
    const clock = new PhaseClock();
    let stored: StoredCheckpoint | undefined;
    const logFailure = (work: () => Promise<void>): Promise<void> => this.#unlessItFails(id, n, work);
    const left = (): Promise<void> =>
      logFailure(async () => {
        if (handle.metadata.wanted !== undefined) await handle.write({ wanted: undefined });
      });
    if (here !== undefined) {
      await logFailure(async () => {
        const claimed = await this.claim(handle, n);
        if (claimed !== undefined && isSameCheckpoint(claimed.manifest, here)) stored = claimed;
      });
    } else {
      stored = await this.#fetch(handle, n, clock).catch(async (error: unknown) => {
        await left();
        throw error;
      });
    }
    const taken = (facts: SandboxSettings): Promise<void> =>
      logFailure(() => handle.write({ facts, wanted: undefined, ...placeOf(stored) }));
    return { taken, left, timed: clock };
  }

  async #fetch(handle: SandboxHandle, n: number, clock: PhaseClock): Promise<StoredCheckpoint> {
    const { archive, engine, kills, closing } = this.#options;
    const { id } = handle;
    const stored = await this.claim(handle, n);
    if (stored === undefined || archive === undefined) throw await this.#notThere(id, n);
    const { manifest } = stored;
    if (manifest.owner === undefined) throw nothingKept(id, n);
    await engine.assertCouldRun(engine.get(id).record, manifest, { checkpoint: n });
    await kills.unlessKilled(id, async (killed) => {
      using signal = firstToAbort(handle.signal, closing, killed);
      await archive.fetchMore(id, n, { signal, clock });
    });
    return stored;
  }

  async #unlessItFails(id: SandboxId, n: number, work: () => Promise<void>): Promise<void> {
    await work().catch((error: unknown) => {
      this.#options.log.warn({ err: error, sandboxId: id, checkpoint: n }, "rollback not told to the stores");
    });
  }

  async #notThere(id: SandboxId, n: number): Promise<SandboxError> {
    const known = (await this.list(id)).map((checkpoint) => checkpoint.n);
    const { fromServer } = this.#options.owned.find(id).metadata.takenOver ?? {};
    // Its number was given, and what was made of it may be on that server's disk alone.
    const elsewhere =
      fromServer === undefined
        ? ""
        : ` What server ${fromServer.id} (${fromServer.url}) could not store any more, it stores when it is started again.`;
    return new SandboxError("not_found", `Cannot roll back sandbox ${id}: it has no checkpoint ${n}`, {
      suggestion: `It has ${known.join(", ") || "none"}.${elsewhere}`,
      details: { sandboxId: id, checkpoint: n },
    });
  }

  /**
   * For one that this server has again: the server before it may have died in the middle of a rollback. From now on the
   * metadata say what became of that, as it was found here: the sandbox is where it was taken back to, or where it was.
   */
  async settleRollback(handle: SandboxHandle, { sandbox, facts }: ManagedSandbox): Promise<void> {
    const { wanted, facts: told } = handle.metadata;
    const rollbacks = Math.max(facts.rollbacks ?? 0, told.rollbacks ?? 0);
    if (wanted === undefined && rollbacks === (told.rollbacks ?? 0)) return;
    const isThere = wanted !== undefined && currentCheckpoint(sandbox.record) === wanted;
    const stored = isThere ? await this.#options.archive?.find(handle.id, wanted) : undefined;
    await handle.write({ facts: { ...told, rollbacks }, wanted: undefined, ...placeOf(stored) });
  }

  /**
   * Before a rollback makes this checkpoint of what it leaves behind: notes that it is to be stored, whatever becomes
   * of this server.
   */
  async noteLeftBehind(handle: SandboxHandle, n: number): Promise<void> {
    const sandbox = this.#options.engine.get(handle.id);
    const isReserved = n < handle.metadata.nextCheckpoint;
    const noted = (await readLeftBehind(sandbox)).filter((left) => left.n !== n);
    await writeLeftBehind(sandbox, [...noted, isReserved ? { n, epoch: handle.epoch } : { n }]);
  }

  /**
   * For one whose turn it is, whether this server has its lease or not: stores what rollbacks left behind here. False:
   * the store did not take all of it, and the rest stays noted; the sandbox must not be dropped here before it is asked
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
        // The rollback came to nothing before this checkpoint was made, or it was removed since.
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
   * The store did not take the number when it was given. Rejects with `conflict` when another server may have given it
   * since.
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
   * For one whose turn it is: here and in the store. Rejects with `in_use` for one that the sandbox stands on, here or
   * for others.
   */
  async remove(id: SandboxId, n: number, removeHere: () => Promise<boolean>): Promise<boolean> {
    const { owned, home, archive } = this.#options;
    const handle = owned.find(id);
    if (handle.metadata.checkpoint?.n === n) throw neededElsewhere(id, n);
    // Of a rollback that came to nothing, since it is our turn.
    if (handle.metadata.wanted === n) await handle.write({ wanted: undefined });
    const wasHere = await removeHere();
    const mayGo = async (): Promise<boolean> => {
      const metadata = await SandboxHandle.read(home, id);
      return metadata === undefined || !neededCheckpoints(metadata).includes(n);
    };
    const retirement = await archive?.remove(id, n, { mayGo });
    if (retirement === "kept") throw neededElsewhere(id, n);
    return wasHere || retirement === "gone";
  }
}

/** What asking again does not help against: it is damaged here, or its number is another checkpoint's. */
function isFinal(error: unknown): boolean {
  return isSandboxError(error, "unrestorable") || isSandboxError(error, "conflict");
}

function placeOf(stored: StoredCheckpoint | undefined): Pick<SandboxMetadata, "checkpoint"> {
  return stored === undefined ? {} : { checkpoint: { n: stored.n, createdAtMs: stored.manifest.createdAtMs } };
}

/**
 * The server could not write to the store when it gave the number, and another one has had the sandbox since: it may
 * have given the same number.
 */
function numberNotReserved(sandboxId: SandboxId, checkpoint: number): SandboxError {
  return new SandboxError("conflict", `Cannot store checkpoint ${checkpoint}: its number was never reserved`, {
    details: { sandboxId, checkpoint },
  });
}

function neededElsewhere(sandboxId: SandboxId, checkpoint: number): SandboxError {
  return new SandboxError("in_use", `Cannot remove checkpoint ${checkpoint}: the sandbox goes on from it elsewhere`, {
    suggestion: "Pause the sandbox, which stores a newer one, or kill it.",
    details: { sandboxId, checkpoint },
  });
}

/** Numbers are given once; the time is for those that a server gave without a store to write them down in. */
function isSameCheckpoint(
  one: Pick<CheckpointInfo, "n" | "createdAtMs">,
  two: Pick<CheckpointInfo, "n" | "createdAtMs">,
) {
  return one.n === two.n && one.createdAtMs === two.createdAtMs;
}
