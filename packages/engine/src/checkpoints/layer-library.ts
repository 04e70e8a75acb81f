import { randomUUID } from "node:crypto";
import { access, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno, syncDirectory, writeDurably } from "@atoll/host";
import { deadlineAfter, isSandboxError, LayerId, SandboxError, SandboxId, type LayerPart } from "@atoll/protocol";
import { z } from "zod";
import type { DataLayout, SandboxLayout } from "../store/layout.ts";
import { removeTree } from "../store/remove-tree.ts";
import { settleAll } from "../support/settle-all.ts";
import { warn } from "../support/warn.ts";
import { CheckpointStore } from "./checkpoint-store.ts";
import { readFirstLayers } from "./first-layers.ts";
import { mergeLayers } from "./merge-layers.ts";
import { Pins } from "./pins.ts";
import type { TreePacker, UnpackOptions } from "./tree-packer.ts";

const readTimeoutMs = 30 * 60_000;

/** A larger archive has files in it, so its layer need not be read. */
const mostEmptyBytes = 1024;

/** What is known of a layer on this machine; it is stored beside the layer. */
const Sealed = z.strictObject({ sizeBytes: z.int(), sha256: z.string(), stamp: z.string() });
type Sealed = z.infer<typeof Sealed>;

/**
 * The sealed layers of one data directory. A layer belongs to every checkpoint whose manifest names it, of any sandbox,
 * and is removed with the last of them.
 */
export class LayerLibrary {
  #layout: DataLayout;
  #mergerPath: string;
  #packer: TreePacker;
  /** Layers that were made and are not in a manifest yet. */
  #unpublished = new Set<string>();
  /** Layers that are in use and may not be in a manifest yet. */
  #pins = new Pins();
  #turn: Promise<unknown> = Promise.resolve();
  #isCollectionDue = false;

  /** `mergerPath` is the guest's binary, which can also merge layers. */
  constructor(layout: DataLayout, options: { mergerPath: string; packer: TreePacker }) {
    this.#layout = layout;
    this.#mergerPath = options.mergerPath;
    this.#packer = options.packer;
  }

  /** Returns, per tree of a template, the directories to mount, the topmost first. */
  directories(layers: readonly LayerPart[], trees: number): string[][] {
    return Array.from({ length: trees }, (_, tree) => layers.map(({ id }) => this.upper(id, tree)));
  }

  upper(id: LayerId, tree: number): string {
    return join(this.#dir(id), "trees", String(tree), "upper");
  }

  /**
   * Turns what a sandbox wrote into a layer, in one step and for good, and returns the layer. Nothing may write to it
   * any more; it may still be mounted. A call that was interrupted can be repeated.
   */
  async seal(id: LayerId, sandbox: SandboxLayout, signal: AbortSignal): Promise<LayerPart> {
    this.#unpublished.add(id);
    await mkdir(this.#dir(id), { recursive: true, mode: 0o700 });
    const isTaken = await exists(this.#trees(id));
    const sealed = await this.#read(isTaken ? this.#trees(id) : sandbox.layersDir, signal);
    if (!isTaken) await rename(sandbox.layersDir, this.#trees(id));
    return this.#keep(id, sealed);
  }

  /** Undoes `seal`, also one that was interrupted. Idempotent. */
  async unseal(id: LayerId, sandbox: SandboxLayout): Promise<void> {
    if (await exists(this.#trees(id))) {
      await removeTree(sandbox.layersDir);
      await rename(this.#trees(id), sandbox.layersDir);
    }
    await this.discard(id);
  }

  /** Reads all of a layer and makes it durable at the same time. */
  async #read(dir: string, signal: AbortSignal): Promise<Sealed> {
    return this.#packer.digestDurably(await uppers(dir), signal);
  }

  async #keep(id: LayerId, { sizeBytes, sha256, stamp }: Sealed): Promise<LayerPart> {
    // A layer without its seal, or with half of it, is read again, so the seal need not survive a crash of the machine.
    await writeFile(this.#sealFile(id), JSON.stringify({ sizeBytes, sha256, stamp }), { mode: 0o600 });
    await Promise.all([this.#dir(id), this.#layout.sealedDir].map(syncDirectory));
    return { id, sizeBytes, sha256 };
  }

  /**
   * Removes what overlayfs needs only while a layer is mounted for writing. The layer must not be mounted so any more.
   */
  async trim(id: LayerId): Promise<void> {
    const trees = this.#trees(id);
    await Promise.all((await readdir(trees)).map((tree) => removeTree(join(trees, tree, "work"))));
  }

  /**
   * Leaves out layers that have no file and hide none, as of a sandbox that was paused again before it wrote anything.
   */
  async withoutEmpty(layers: readonly LayerPart[]): Promise<LayerPart[]> {
    const areEmpty = await Promise.all(layers.map((part) => this.#isEmpty(part)));
    return layers.filter((_, index) => areEmpty[index] === false);
  }

  async #isEmpty({ id, sizeBytes }: LayerPart): Promise<boolean> {
    if (sizeBytes > mostEmptyBytes) return false;
    // An unreadable layer counts as not empty: `verify` reports it.
    const names = await Promise.all((await this.#uppers(id)).map((dir) => readdir(dir))).catch(() => [[id]]);
    return names.flat().length === 0;
  }

  /**
   * Merges two layers, the upper first, into one that can take their place above the layers below. For a stack that
   * grows too deep; the two layers stay as they are, because other checkpoints may need them. `below` is, per tree, the
   * directories of all layers below the two.
   */
  async merge(
    id: LayerId,
    [upper, lower]: [LayerPart, LayerPart],
    below: string[][],
    signal: AbortSignal,
  ): Promise<LayerPart> {
    this.#unpublished.add(id);
    await removeTree(this.#dir(id));
    const links = join(this.#dir(id), "links");
    await mkdir(links, { recursive: true, mode: 0o700 });
    for (const tree of await readdir(this.#trees(upper.id))) {
      const target = join(this.#trees(id), tree, "upper");
      await mkdir(target, { recursive: true });
      const [lowerDir, upperDir] = [this.upper(lower.id, Number(tree)), this.upper(upper.id, Number(tree))];
      const order = { lower: lowerDir, upper: upperDir, target, links, below: below[Number(tree)] ?? [] };
      await mergeLayers(this.#mergerPath, order, signal);
    }
    await removeTree(links);
    return this.#keep(id, await this.#read(this.#trees(id), signal));
  }

  /** Rejects with `unrestorable` unless each layer exists and is what the manifest says. */
  async verify(parts: readonly LayerPart[], signal: AbortSignal): Promise<void> {
    if (parts.length === 0) return;
    const trees = await Promise.all(parts.map(({ id }) => this.#uppers(id)));
    const [stamps, seals] = await Promise.all([
      this.#packer.stamps(trees, signal),
      Promise.all(parts.map(({ id }) => this.#readSeal(id))),
    ]);
    for (const [index, { id, sizeBytes, sha256 }] of parts.entries()) {
      const known = seals[index];
      if (known?.stamp === stamps[index] && known?.sha256 === sha256 && known.sizeBytes === sizeBytes) continue;
      const sealed = await this.#packer.digest(trees[index] ?? [], signal);
      if (sealed.sha256 !== sha256) throw refused(id, "its files are not what was saved");
      await writeDurably(this.#sealFile(id), JSON.stringify(sealed));
    }
  }

  async #uppers(id: LayerId): Promise<string[]> {
    if (!(await exists(this.#trees(id)))) throw refused(id, "it is missing");
    return uppers(this.#trees(id));
  }

  /** Returns true if the layer is here and complete. */
  async has(part: LayerPart): Promise<boolean> {
    try {
      await this.verify([part], deadlineAfter(readTimeoutMs));
      return true;
    } catch (error) {
      if (isSandboxError(error, "unrestorable")) return false;
      throw error;
    }
  }

  /**
   * Writes the archive of a layer. Rejects with `unrestorable`, and leaves no archive, unless it is what the part says.
   */
  async pack(part: LayerPart, toPath: string, signal: AbortSignal): Promise<void> {
    const { sha256 } = await this.#packer.write(await this.#uppers(part.id), toPath, signal);
    if (sha256 === part.sha256) return;
    await rm(toPath, { force: true });
    throw refused(part.id, "its files are not what was saved");
  }

  /**
   * Keeps these layers, also ones that do not exist yet, from being collected until the returned function is called.
   */
  pin(ids: readonly string[]): () => void {
    return this.#pins.pin(ids);
  }

  /** Makes a layer from its archive, unless it is here already. The caller has pinned it. */
  async import(
    part: LayerPart,
    archive: string,
    { trees, ...options }: Pick<UnpackOptions, "mostEntries" | "signal"> & { trees: number },
  ): Promise<void> {
    if (await this.has(part)) return;
    const draft = `${part.id}.${randomUUID()}`;
    const dir = join(this.#layout.sealedDir, draft);
    const release = this.pin([draft]);
    try {
      const into = Array.from({ length: trees }, (_, tree) => join(dir, "trees", String(tree), "upper"));
      for (const upper of into) await mkdir(upper, { recursive: true, mode: 0o700 });
      await this.#packer.unpack(archive, into, { expected: part, part: `layer ${part.id}`, ...options });
      const { sizeBytes, sha256 } = part;
      const stamp = await this.#packer.stamp(into, options.signal);
      await writeDurably(join(dir, "seal.json"), JSON.stringify({ sizeBytes, sha256, stamp }));
      await this.#inTurn(() => this.#place(part, dir));
    } finally {
      await removeTree(dir);
      release();
    }
  }

  /**
   * Another import may have brought the same layer in the same time. A damaged layer of the same name is replaced,
   * unless a sandbox here needs a different layer of that name.
   */
  async #place(part: LayerPart, dir: string): Promise<void> {
    const place = this.#dir(part.id);
    if (await exists(place)) {
      if (await this.has(part)) return;
      const needed = await this.#needed();
      const others = needed.get(part.id) ?? new Set();
      if ([...others].some((sha256) => sha256 !== part.sha256))
        throw refused(part.id, "another layer of the same name is here");
      await rename(place, `${place}.${randomUUID()}`);
    }
    await rename(dir, place);
    await syncDirectory(this.#layout.sealedDir);
  }

  /** Runs `write`, after which manifests name these layers. No layer is collected during that time. */
  publish(layers: readonly LayerPart[], write: () => Promise<void>): Promise<void> {
    return this.#inTurn(async () => {
      await write();
      for (const { id } of layers) this.#unpublished.delete(id);
    });
  }

  /** Removes a layer that no manifest names. Idempotent. */
  async discard(id: LayerId): Promise<void> {
    await removeTree(this.#dir(id));
    this.#unpublished.delete(id);
  }

  /**
   * Removes the layers that no checkpoint needs, and returns the names of those that are gone. A manifest that cannot
   * be read may need any of them: then nothing is removed. If one layer cannot be removed, the others are removed
   * before this rejects.
   */
  collect(): Promise<string[]> {
    return this.#inTurn(() => this.#collect());
  }

  /** Collects in the background, because that reads every manifest. Calls before it has begun share one collection. */
  collectSoon(): void {
    if (this.#isCollectionDue) return;
    this.#isCollectionDue = true;
    const collected = this.#inTurn(() => {
      this.#isCollectionDue = false;
      return this.#collect();
    });
    collected.catch(warn);
  }

  /** Resolves when nothing is being published or collected. */
  async settled(): Promise<void> {
    await this.#turn;
  }

  async #collect(): Promise<string[]> {
    const present = await names(this.#layout.sealedDir);
    if (present.length === 0) return [];
    const needed = await this.#needed().catch(() => undefined);
    if (needed === undefined) return [];
    const left = present.filter((name) => !needed.has(name) && !this.#unpublished.has(name) && !this.#pins.has(name));
    await settleAll(left.map((name) => removeTree(join(this.#layout.sealedDir, name))));
    return left;
  }

  /** Returns, by layer name, the digests that sandboxes know of. */
  async #needed(): Promise<Map<string, Set<string>>> {
    const needed = new Map<string, Set<string>>();
    const need = (id: LayerId, ...digests: string[]): void => {
      needed.set(id, new Set([...(needed.get(id) ?? []), ...digests]));
    };
    for (const name of await names(this.#layout.sandboxesDir)) {
      const id = SandboxId.safeParse(name);
      if (!id.success) continue;
      const sandbox = this.#layout.sandbox(id.data);
      for (const layer of await readFirstLayers(sandbox)) need(layer.id, layer.sha256);
      const store = new CheckpointStore(sandbox);
      for (const n of await store.numbers()) {
        const manifest = await store.find(n);
        for (const layer of manifest?.layers ?? []) need(layer.id, layer.sha256);
        // An unfinished checkpoint may be finished by a later server.
        if (manifest === undefined) need(layerId(id.data, n));
      }
    }
    return needed;
  }

  async #readSeal(id: LayerId): Promise<Sealed | undefined> {
    const text = await readFile(this.#sealFile(id), "utf8").catch(() => undefined);
    if (text === undefined) return undefined;
    try {
      return Sealed.parse(JSON.parse(text));
    } catch {
      return undefined;
    }
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  #dir(id: LayerId): string {
    return join(this.#layout.sealedDir, id);
  }

  #trees(id: LayerId): string {
    return join(this.#dir(id), "trees");
  }

  #sealFile(id: LayerId): string {
    return join(this.#dir(id), "seal.json");
  }
}

/** Returns the id of the layer of saved files whose archive has this digest. */
export function filesLayerId(sha256: string): LayerId {
  return LayerId.parse(`files-${sha256}`);
}

export function layerId(sandboxId: SandboxId, n: number, merged: "merged" | "" = ""): LayerId {
  return LayerId.parse(merged === "" ? `${sandboxId}-${n}` : `${sandboxId}-${n}-merged`);
}

function refused(id: LayerId, because: string): SandboxError {
  return new SandboxError("unrestorable", `Cannot use layer ${id}: ${because}`, { details: { part: id, because } });
}

/** Returns the directories with what was written, tree by tree. Everything else beside them belongs to overlayfs. */
async function uppers(dir: string): Promise<string[]> {
  const trees = await readdir(dir);
  return trees.toSorted((a, b) => Number(a) - Number(b)).map((tree) => join(dir, tree, "upper"));
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function names(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}
