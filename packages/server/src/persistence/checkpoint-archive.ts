import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import {
  PhaseClock,
  type CheckpointFiles,
  type CheckpointImport,
  type EgressHandler,
  type Engine,
  type Sandbox,
} from "@atoll/engine";
import {
  isSandboxError,
  SandboxError,
  type CheckpointManifest,
  type ImportedRecord,
  type SandboxId,
} from "@atoll/protocol";
import { Gate, inParallel, renewManifest, type ObjectStore } from "@atoll/storage";
import type { Log } from "../telemetry/log.ts";
import { downloadPart } from "./checkpoint-download.ts";
import { manifestKey, type PartRole } from "./checkpoint-keys.ts";
import { partsOf, readStored, StoredCheckpoint, type CheckpointPart, type StoredPart } from "./checkpoint-manifest.ts";
import { unrestorable } from "./checkpoint-refusal.ts";
import { retireStored, type Retirement } from "./checkpoint-retirement.ts";
import { findReusable, publishedNumbers } from "./checkpoint-reuse.ts";
import { CheckpointScratch } from "./checkpoint-scratch.ts";
import { asTransfer } from "./checkpoint-timing.ts";
import { uploadPart, type PartSource } from "./checkpoint-upload.ts";

/** The limit for all transfers together. A store may in addition send each part in parallel pieces. */
const maxParallelParts = 4;
const maxParallelManifests = 8;

type CheckpointEngine = Pick<
  Engine,
  "checkpointFiles" | "packLayer" | "hasLayer" | "importSandbox" | "importCheckpoint"
>;

export interface CheckpointArchiveOptions {
  store: ObjectStore;
  engine: CheckpointEngine;
  /** A directory of this server alone, on the disk of its data directory. Its content is removed at the start. */
  scratchDir: string;
  /** Called after a checkpoint of this sandbox was published. */
  onPublished?: (id: SandboxId) => void;
  log: Log;
}

export interface PublishOptions {
  /** The epoch of the lease under which it is published. */
  epoch: number;
  signal: AbortSignal;
  /** Measures the phases `upload` and `verify`. */
  clock?: PhaseClock;
}

export interface FetchOptions {
  signal: AbortSignal;
  onEgress?: EgressHandler;
  /** Measures the phases `download` and `verify`. */
  clock?: PhaseClock;
}

/**
 * Checkpoints in an object store. A checkpoint exists from the moment its manifest does, and is complete then;
 * docs/storage.md says where its parts are.
 */
export class CheckpointArchive {
  readonly #store: ObjectStore;
  readonly #engine: CheckpointEngine;
  readonly #scratch: CheckpointScratch;
  readonly #onPublished: (id: SandboxId) => void;
  readonly #log: Log;
  readonly #gate = new Gate(maxParallelParts);
  /** Lists have a gate of their own, so that they do not wait for transfers. */
  readonly #listGate = new Gate(maxParallelManifests);

  private constructor(options: CheckpointArchiveOptions, scratch: CheckpointScratch) {
    this.#store = options.store;
    this.#engine = options.engine;
    this.#scratch = scratch;
    this.#onPublished = options.onPublished ?? (() => undefined);
    this.#log = options.log;
  }

  static async open(options: CheckpointArchiveOptions): Promise<CheckpointArchive> {
    return new CheckpointArchive(options, await CheckpointScratch.open(options.scratchDir));
  }

  /**
   * Stores the missing parts of a checkpoint, and the manifest last. It may be called again after any failure, also by
   * another process: what was stored is not sent again, and what was published stays as it is. Rejects with `conflict`
   * when another checkpoint was published under this number.
   */
  publish(
    id: SandboxId,
    n: number,
    { epoch, signal, clock = new PhaseClock() }: PublishOptions,
  ): Promise<StoredCheckpoint> {
    return asTransfer(`store checkpoint ${n} of sandbox ${id}`, signal, async (stop) => {
      const files = await this.#engine.checkpointFiles(id, n);
      const { manifest } = files;
      const published = await readStored(this.#store, { sandboxId: id, n }, stop);
      if (published !== undefined) return sameOrConflict(published, manifest);
      const reusable = await findReusable(this.#store, manifest, { signal: stop, nowMs: Date.now() });
      const context = { store: this.#store, engine: this.#engine, scratch: this.#scratch };
      const sent: StoredPart[] = [];
      const parts = await this.#each(sourcesOf(files), stop, async (source, workSignal) => {
        const there = reusable.get(source.name);
        if (there !== undefined) return there;
        const part = await uploadPart(context, source, workSignal);
        sent.push(part);
        return part;
      });
      clock.lap("upload");
      await this.#assertThere(parts, stop);
      const stored = await this.#putManifest({ version: 1, sandboxId: id, n, epoch, manifest, parts }, stop);
      clock.lap("verify");
      const sentBytes = sent.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
      this.#log.info(
        { sandboxId: id, checkpoint: n, parts: parts.length, sent: sent.length, sentBytes },
        "checkpoint stored",
      );
      this.#onPublished(id);
      return stored;
    });
  }

  /**
   * Fetches a stored checkpoint as a paused sandbox. Rejects with `unrestorable`, naming the part, when a part is
   * missing or damaged.
   */
  fetch(id: SandboxId, n: number, record: ImportedRecord, options: FetchOptions): Promise<Sandbox> {
    const { onEgress } = options;
    return this.#fetchInto(id, n, options, (from, signal) =>
      this.#engine.importSandbox({ ...from, record }, { signal, ...(onEgress === undefined ? {} : { onEgress }) }),
    );
  }

  /** Fetches one more checkpoint of a sandbox that is here, whatever it is doing. */
  fetchMore(id: SandboxId, n: number, options: Omit<FetchOptions, "onEgress">): Promise<void> {
    return this.#fetchInto(id, n, options, (from, signal) => this.#engine.importCheckpoint(id, from, { signal }));
  }

  #fetchInto<T>(
    id: SandboxId,
    n: number,
    { signal, clock = new PhaseClock() }: FetchOptions,
    take: (from: CheckpointImport, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    return asTransfer(`fetch checkpoint ${n} of sandbox ${id}`, signal, async (stop) => {
      const stored = await readStored(this.#store, { sandboxId: id, n }, stop);
      if (stored === undefined)
        throw unrestorable({ sandboxId: id, n }, "manifest.json", "it is missing from the store");
      const wanted = await this.#wanted(stored);
      // A compressed part is on the disk twice for a moment.
      const bytes = wanted.reduce(
        (sum, { stored: part }) => sum + part.originalBytes + (part.encoding === "plain" ? 0 : part.sizeBytes),
        0,
      );
      await using space = await this.#scratch.take(bytes);
      const places = await makePlaces(space.path);
      const placed = wanted.map((part, index) => ({
        ...part,
        toPath: places.of(part.role),
        landingPath: join(places.landingDir, String(index)),
      }));
      await this.#each(placed, stop, ({ toPath, landingPath, ...part }, workSignal) =>
        downloadPart(this.#store, stored, part, { toPath, landingPath, signal: workSignal }),
      );
      clock.lap("download");
      const owner = placed.find(({ role }) => role.kind === "owner")?.toPath;
      const layers = placed.flatMap(({ role, toPath }) =>
        role.kind === "layer" ? [{ part: role.layer, archive: toPath }] : [],
      );
      const { manifest } = stored;
      const { memoryDir } = places;
      const taken = await take({ manifest, memoryDir, layers, ...(owner === undefined ? {} : { owner }) }, stop);
      clock.lap("verify");
      this.#log.info({ sandboxId: id, checkpoint: n, parts: placed.length, bytes }, "checkpoint fetched");
      return taken;
    });
  }

  /** Returns every readable checkpoint of a sandbox, in order. */
  async list(
    id: SandboxId,
    { signal = new AbortController().signal }: { signal?: AbortSignal } = {},
  ): Promise<StoredCheckpoint[]> {
    const numbers = await publishedNumbers(this.#store, id, signal);
    const read = async (n: number, stop: AbortSignal): Promise<StoredCheckpoint[]> => {
      try {
        const stored = await readStored(this.#store, { sandboxId: id, n }, stop);
        return stored === undefined ? [] : [stored];
      } catch (error) {
        if (!isSandboxError(error, "unrestorable")) throw error;
        this.#log.warn({ sandboxId: id, checkpoint: n, err: error }, "stored checkpoint cannot be read");
        return [];
      }
    };
    return (await this.#each(numbers, signal, read, this.#listGate)).flat();
  }

  /** Returns a stored checkpoint, or undefined if there is none. */
  find(
    id: SandboxId,
    n: number,
    { signal = new AbortController().signal } = {},
  ): Promise<StoredCheckpoint | undefined> {
    return readStored(this.#store, { sandboxId: id, n }, signal);
  }

  /**
   * Renews a checkpoint that is needed from now on. The caller has recorded that before, where the `mayGo` of every
   * removal reads it. Returns false if the checkpoint is gone.
   */
  renew(id: SandboxId, n: number): Promise<boolean> {
    return renewManifest(this.#store, manifestKey(id, n));
  }

  /**
   * Removes a checkpoint; repeated calls are allowed. Parts that other checkpoints need stay; the rest is removed after
   * the collector has checked that. `mayGo` is called last.
   */
  remove(
    id: SandboxId,
    n: number,
    { signal = new AbortController().signal, mayGo }: { signal?: AbortSignal; mayGo?: () => Promise<boolean> } = {},
  ): Promise<Retirement> {
    const options = { signal, nowMs: Date.now(), ...(mayGo === undefined ? {} : { mayGo }) };
    return retireStored(this.#store, { sandboxId: id, n }, options);
  }

  /** Removes all checkpoints of a sandbox, also unreadable ones; repeated calls are allowed. */
  async removeAll(
    id: SandboxId,
    { signal = new AbortController().signal }: { signal?: AbortSignal } = {},
  ): Promise<void> {
    for (const n of await publishedNumbers(this.#store, id, signal)) await this.remove(id, n, { signal });
  }

  /**
   * Runs the work for all items and returns the results in the order of the items. The first failure aborts the others.
   */
  async #each<T, R>(
    items: readonly T[],
    signal: AbortSignal,
    work: (item: T, signal: AbortSignal) => Promise<R>,
    gate: Gate = this.#gate,
  ): Promise<R[]> {
    const results: R[] = [];
    await inParallel(items.length, {
      gate,
      signal,
      prepare: async (index) => index,
      work: async (index, workSignal) => {
        results[index] = await work(items[index] as T, workSignal);
      },
    });
    return results;
  }

  /** Returns the parts of a stored checkpoint that this machine does not have. */
  async #wanted(stored: StoredCheckpoint): Promise<WantedPart[]> {
    const byName = new Map(stored.parts.map((part) => [part.name, part]));
    const wanted: WantedPart[] = [];
    for (const part of partsOf(stored.manifest)) {
      const from = byName.get(part.name);
      if (from === undefined) throw new Error(`A stored checkpoint was read without ${part.name}`);
      if (part.role.kind === "layer" && (await this.#engine.hasLayer(part.role.layer))) continue;
      wanted.push({ ...part, stored: from });
    }
    return wanted;
  }

  async #assertThere(parts: readonly StoredPart[], signal: AbortSignal): Promise<void> {
    await this.#each(parts, signal, async ({ name, key, sizeBytes }) => {
      const info = await this.#store.stat(key, { signal });
      if (info?.sizeBytes === sizeBytes) return;
      throw new SandboxError(
        "storage_failed",
        `Cannot store a checkpoint: ${name} is no longer in ${this.#store.place}`,
        {
          suggestion: "Try again: missing parts are sent again.",
          details: { part: name, key },
        },
      );
    });
  }

  async #putManifest(checkpoint: StoredCheckpoint, signal: AbortSignal): Promise<StoredCheckpoint> {
    const { sandboxId, n, manifest } = checkpoint;
    const data = Buffer.from(`${JSON.stringify(StoredCheckpoint.parse(checkpoint))}\n`);
    try {
      await this.#store.put(manifestKey(sandboxId, n), data, { signal, if: "absent" });
      return checkpoint;
    } catch (error) {
      if (!isSandboxError(error, "conflict")) throw error;
      const published = await readStored(this.#store, { sandboxId, n }, signal);
      if (published === undefined) throw error;
      return sameOrConflict(published, manifest);
    }
  }
}

type WantedPart = CheckpointPart & { stored: StoredPart };

function sourcesOf({ manifest, memory, owner }: CheckpointFiles): PartSource[] {
  const memoryPaths = new Map(memory.map(({ name, path }) => [name, path]));
  return partsOf(manifest).map((part) => {
    const { role } = part;
    if (role.kind === "layer") return { ...part, from: { layer: role.layer } };
    const path = role.kind === "owner" ? owner : memoryPaths.get(role.name);
    if (path === undefined) throw unrestorable(manifest, part.name, "it is missing from this machine");
    return { ...part, from: { path } };
  });
}

async function makePlaces(
  dir: string,
): Promise<{ memoryDir: string; landingDir: string; of: (role: PartRole) => string }> {
  const [memoryDir, layersDir, landingDir] = [join(dir, "memory"), join(dir, "layers"), join(dir, "landing")];
  for (const path of [memoryDir, layersDir, landingDir]) await mkdir(path, { mode: 0o700 });
  return {
    memoryDir,
    landingDir,
    of: (role) => {
      switch (role.kind) {
        case "memory":
          return join(memoryDir, role.name);
        case "owner":
          return join(dir, "owner");
        case "layer":
          return join(layersDir, role.layer.id);
      }
    },
  };
}

/**
 * Returns the published checkpoint if it is the same. There is one checkpoint of each number, whichever server
 * publishes it.
 */
function sameOrConflict(published: StoredCheckpoint, manifest: CheckpointManifest): StoredCheckpoint {
  if (isDeepStrictEqual(published.manifest, JSON.parse(JSON.stringify(manifest)))) return published;
  const { sandboxId, n, epoch } = published;
  throw new SandboxError("conflict", `Cannot store checkpoint ${n} of sandbox ${sandboxId}: there is another one`, {
    suggestion: "Another server has stored a checkpoint with this number; continue from that one.",
    details: { sandboxId, checkpoint: n, epoch },
  });
}
