import { PhaseClock, type Timed } from "@atoll/engine";
import {
  describeCheckpoint,
  firstToAbort,
  SandboxError,
  type CheckpointInfo,
  type ListedCheckpoint,
  type SandboxId,
} from "@atoll/protocol";
import type { StoredCheckpoint } from "./checkpoint-manifest.ts";
import { nothingKept } from "./checkpoint-refusal.ts";
import type { KillSignals } from "./kill-signals.ts";
import type { OwnedSandboxes } from "./owned-sandboxes.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle } from "./sandbox-handle.ts";
import { neededCheckpoints } from "./sandbox-metadata.ts";

export interface StoredCheckpointsOptions extends Pick<PersistenceOptions, "archive" | "home" | "engine" | "log"> {
  owned: OwnedSandboxes;
  kills: KillSignals;
  /** Aborts when the server stops. */
  closing: AbortSignal;
}

/** The way back to a checkpoint. One of the two is called when it is over; what they cannot write is told in the log. */
export interface WayBack {
  /** The sandbox runs as of this checkpoint: if it is stored, whoever takes it over goes on from there, too. */
  taken(): Promise<void>;
  /** Nothing came of it. */
  left(): Promise<void>;
  /** What it took to get the checkpoint here. */
  timed: Timed;
}

/** The checkpoints of persistent sandboxes, here and in the store. What the metadata need is there, whatever collectors do. */
export class StoredCheckpoints {
  readonly #options: StoredCheckpointsOptions;
  /** Those that rollbacks left behind and that are here alone. */
  readonly #leftBehind = new Map<SandboxId, Set<number>>();

  constructor(options: StoredCheckpointsOptions) {
    this.#options = options;
  }

  /**
   * Sees to it that a checkpoint stays in the store until the metadata have another `checkpoint`, or nothing `wanted`. Undefined: it is not there. The metadata say so first, then it is renewed:
   * a collector that has asked before that removes nothing, however late it is.
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
   * Before it is gone back to a checkpoint, for one whose turn it is: what is not here is fetched and verified, and the sandbox does meanwhile what it did. When it rejects, nothing has changed. To one that is here it can
   * be gone back without the store as well; then nobody else goes back with it.
   */
  async wayBackTo(id: SandboxId, n: number): Promise<WayBack> {
    const { owned, engine } = this.#options;
    const handle = owned.find(id);
    const here = (await engine.checkpoints(id)).find((checkpoint) => checkpoint.n === n);
    const clock = new PhaseClock();
    let stored: StoredCheckpoint | undefined;
    const tell = (work: () => Promise<void>): Promise<void> => this.#unlessItFails(id, n, work);
    const left = (): Promise<void> =>
      tell(async () => {
        if (handle.metadata.wanted !== undefined) await handle.write({ wanted: undefined });
      });
    if (here !== undefined) {
      await tell(async () => {
        const claimed = await this.claim(handle, n);
        if (claimed !== undefined && isSameCheckpoint(claimed.manifest, here)) stored = claimed;
      });
    } else {
      stored = await this.#fetch(handle, n, clock).catch(async (error: unknown) => {
        await left();
        throw error;
      });
    }
    const taken = (): Promise<void> =>
      tell(async () => {
        if (stored === undefined) return;
        const { createdAtMs } = stored.manifest;
        await handle.write({ checkpoint: { n, createdAtMs }, wanted: undefined });
      });
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
    return new SandboxError("not_found", `Cannot roll back sandbox ${id}: it has no checkpoint ${n}`, {
      suggestion: `It has ${known.join(", ") || "none"}.`,
      details: { sandboxId: id, checkpoint: n },
    });
  }

  /** A rollback left this one behind: it is to be stored before the sandbox leaves this server. */
  leaveBehind(id: SandboxId, n: number): void {
    this.#leftBehind.set(id, new Set([...(this.#leftBehind.get(id) ?? []), n]));
  }

  /** For one whose turn it is. What cannot be stored now is told, and tried again when it is paused or asked for. */
  async storeLeftBehind(handle: SandboxHandle): Promise<void> {
    const { id } = handle;
    const numbers = this.#leftBehind.get(id) ?? new Set();
    for (const n of numbers) {
      try {
        await this.#store(handle, n);
        numbers.delete(n);
      } catch (error) {
        this.#options.log.warn({ err: error, sandboxId: id, checkpoint: n }, "checkpoint left behind not stored yet");
      }
    }
    if (numbers.size === 0) this.forgetLeftBehind(id);
  }

  /** It is not this server's any more. */
  forgetLeftBehind(id: SandboxId): void {
    this.#leftBehind.delete(id);
  }

  async #store(handle: SandboxHandle, n: number): Promise<void> {
    const { archive, engine, kills, closing } = this.#options;
    const { id, epoch } = handle;
    const isHere = (await engine.checkpoints(id)).some((checkpoint) => checkpoint.n === n);
    if (!isHere || archive === undefined) return;
    if (n >= handle.metadata.nextCheckpoint) await handle.write({ nextCheckpoint: n + 1 });
    await kills.unlessKilled(id, async (killed) => {
      using signal = firstToAbort(handle.signal, closing, killed);
      await archive.publish(id, n, { epoch, signal });
    });
  }

  /** For one whose turn it is: here and in the store. Rejects with `in_use` for one that the sandbox stands on, here or for others. */
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
