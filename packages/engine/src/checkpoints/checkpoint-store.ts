import { mkdir, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno, syncDirectory, writeDurably } from "@atoll/host";
import {
  CheckpointManifest,
  describeCheckpoint,
  SandboxError,
  type CheckpointInfo,
  type MemoryPart,
} from "@atoll/protocol";
import type { ImageNeeds } from "../drivers/driver.ts";
import { importingMark, type CheckpointLayout, type SandboxLayout } from "../store/layout.ts";
import { removeTree } from "../store/remove-tree.ts";
import { settleAll } from "../support/settle-all.ts";
import { digestFile, type FileDigest } from "./digest-file.ts";
import type { TreePacker } from "./tree-packer.ts";

/** The largest number that fits into the names of layers and directories. */
export const lastCheckpoint = 999_999_999;
/** A removed checkpoint has this suffix after its number. */
const retiredMark = ".gone";

/** What is known of a checkpoint before its memory is saved. */
interface PendingCheckpoint extends ImageNeeds, Pick<CheckpointManifest, "nodes"> {}

/** The checkpoints of one sandbox: numbered directories. Each is complete from the moment it has its manifest. */
export class CheckpointStore {
  #sandbox: SandboxLayout;

  constructor(sandbox: SandboxLayout) {
    this.#sandbox = sandbox;
  }

  /** Returns the numbers of all directories, also of those without a manifest, in order. */
  async numbers(): Promise<number[]> {
    return (await this.#names())
      .filter((name) => /^[1-9]\d{0,8}$/.test(name))
      .map(Number)
      .toSorted((a, b) => a - b);
  }

  /**
   * Returns the number of the next checkpoint. The number of a removed one is not used again, since forks may still
   * have its layer.
   */
  async next(): Promise<number> {
    const used = (await this.#names()).map((name) => Number.parseInt(name, 10)).filter((n) => n > 0);
    return Math.max(0, ...used) + 1;
  }

  /** Makes an empty directory for an image with these needs, and stores what its manifest will say. */
  async begin(n: number, pending: PendingCheckpoint): Promise<void> {
    const target = this.#sandbox.checkpoint(n);
    await this.remove(n);
    await mkdir(target.memoryDir, { recursive: true, mode: 0o700 });
    await writeDurably(target.needsFile, JSON.stringify(pending));
  }

  /** Returns what `begin` stored. */
  async needsOf(n: number): Promise<PendingCheckpoint> {
    return JSON.parse(await readFile(this.#sandbox.checkpoint(n).needsFile, "utf8")) as PendingCheckpoint;
  }

  /** Rejects with `unrestorable` when there is no such checkpoint, or it belongs to another sandbox. */
  async read(n: number): Promise<CheckpointManifest> {
    const manifest = await this.find(n);
    if (manifest !== undefined) return manifest;
    throw unrestorable(n, "manifest.json", "it is missing");
  }

  /** Returns undefined if the checkpoint was never finished. */
  async find(n: number): Promise<CheckpointManifest | undefined> {
    const text = await readFile(this.#sandbox.checkpoint(n).manifestFile, "utf8").catch((error: unknown) => {
      if (hasErrno(error, "ENOENT", "ENOTDIR")) return undefined;
      throw error;
    });
    if (text === undefined) return undefined;
    let manifest: CheckpointManifest;
    try {
      manifest = CheckpointManifest.parse(JSON.parse(text));
    } catch (cause) {
      throw unrestorable(n, "manifest.json", "it cannot be read", cause);
    }
    const isOwn = manifest.n === n && this.#sandbox.dir.endsWith(`/${manifest.sandboxId}`);
    if (!isOwn) {
      const owner = `checkpoint ${manifest.n} of sandbox ${manifest.sandboxId}`;
      throw unrestorable(n, "manifest.json", `it belongs to ${owner}`);
    }
    return manifest;
  }

  /** Returns all finished checkpoints, in order. */
  async readAll(): Promise<CheckpointManifest[]> {
    const manifests = await Promise.all((await this.numbers()).map((n) => this.find(n)));
    return manifests.filter((manifest) => manifest !== undefined);
  }

  async list(): Promise<CheckpointInfo[]> {
    return (await this.readAll()).map(describeCheckpoint);
  }

  /**
   * Returns size and digest of each file of a memory image that was just written. All of it is durable on disk then.
   */
  async digestMemory(n: number): Promise<MemoryPart[]> {
    const { memoryDir } = this.#sandbox.checkpoint(n);
    const names = (await readdir(memoryDir)).toSorted();
    const parts = await Promise.all(
      names.map(async (name) => {
        const path = join(memoryDir, name);
        const [digest] = await settleAll([digestFile(path), syncPath(path)]);
        return { name, ...digest };
      }),
    );
    await syncPath(memoryDir);
    return parts;
  }

  /**
   * Moves a memory image that was made elsewhere into the directory of its checkpoint. Rejects with `unrestorable`
   * unless its files are exactly those of this manifest.
   */
  async adoptMemory(
    from: string,
    manifest: CheckpointManifest,
    at: CheckpointLayout = this.#sandbox.checkpoint(manifest.n),
  ): Promise<void> {
    const { n, memory } = manifest;
    const { memoryDir } = at;
    await rename(from, memoryDir).catch((error: unknown) => {
      if (!hasErrno(error, "ENOENT")) throw error;
      throw unrestorable(n, "memory", "it is missing", error);
    });
    const known = new Set(memory.map(({ name }) => name));
    const foreign = (await readdir(memoryDir)).find((name) => !known.has(name));
    if (foreign !== undefined) throw unrestorable(n, foreign, "it is not part of the checkpoint");
    await this.verifyMemory(manifest, at);
  }

  /**
   * Packs the present contents of `ownerDir` into a checkpoint that is being made. Returns undefined if there is no
   * such directory.
   */
  async packOwner(n: number, packer: TreePacker, signal: AbortSignal): Promise<FileDigest | undefined> {
    const { ownerDir } = this.#sandbox;
    const isKept = await stat(ownerDir).then(
      (stats) => stats.isDirectory(),
      () => false,
    );
    return isKept ? packer.writeLiving(ownerDir, this.#sandbox.checkpoint(n).ownerFile, signal) : undefined;
  }

  /** Rejects with `unrestorable` unless each file of the image exists and is what was saved. */
  async verifyMemory(
    { n, memory }: CheckpointManifest,
    { memoryDir }: CheckpointLayout = this.#sandbox.checkpoint(n),
  ): Promise<void> {
    await Promise.all(memory.map((part) => verifyFile(n, part.name, join(memoryDir, part.name), part)));
  }

  /** Rejects with `unrestorable` unless the owner's files, if any were saved, exist and are what was saved. */
  async verifyOwner(
    { n, owner }: CheckpointManifest,
    { ownerFile }: CheckpointLayout = this.#sandbox.checkpoint(n),
  ): Promise<void> {
    if (owner !== undefined) await verifyFile(n, "owner", ownerFile, owner);
  }

  /** The last step: the checkpoint exists from now on. */
  async publish(
    manifest: CheckpointManifest,
    { manifestFile }: CheckpointLayout = this.#sandbox.checkpoint(manifest.n),
  ): Promise<void> {
    await writeDurably(manifestFile, `${JSON.stringify(CheckpointManifest.parse(manifest), undefined, 2)}\n`);
  }

  /** Turns an imported checkpoint, with its manifest, into one of this sandbox, in one step. */
  async place(n: number): Promise<void> {
    await this.remove(n);
    await rename(this.#sandbox.importingCheckpoint(n).dir, this.#sandbox.checkpoint(n).dir);
    await syncDirectory(this.#sandbox.checkpointsDir);
  }

  /** Undoes `publish`. Idempotent. */
  async unpublish(n: number): Promise<void> {
    await rm(this.#sandbox.checkpoint(n).manifestFile, { force: true });
  }

  /** Makes the image unusable, durably: it must not be used again once the sandbox that it belongs to has continued. */
  async invalidateMemory(n: number): Promise<void> {
    await writeDurably(this.#sandbox.checkpoint(n).outcomeFile, "1\n");
  }

  /** Removes a checkpoint that was never finished. Idempotent. */
  async remove(n: number): Promise<void> {
    await removeTree(this.#sandbox.checkpoint(n).dir);
  }

  /** Removes a finished checkpoint in one step; its number is not used again. */
  async retire(n: number): Promise<void> {
    const { dir } = this.#sandbox.checkpoint(n);
    await rename(dir, `${dir}${retiredMark}`);
    // After a crash of the machine, the checkpoint must not be back without its parts.
    await syncDirectory(this.#sandbox.checkpointsDir);
    await this.sweep();
  }

  /**
   * Removes the leftovers of checkpoints that were removed or not finished, also by a server that died. The mark of the
   * last number stays, so that it is not used again. Only for work that has the sandbox's turn.
   */
  async sweep(): Promise<void> {
    const names = await this.#names();
    const arriving = names.filter((name) => name.endsWith(importingMark));
    await Promise.all(arriving.map((name) => removeTree(join(this.#sandbox.checkpointsDir, name))));
    const gone = names.filter((name) => name.endsWith(retiredMark)).map((name) => Number.parseInt(name, 10));
    if (gone.length === 0) return;
    // A checkpoint that was never finished needs no mark.
    const last = Math.max(...gone, ...(await this.readAll()).map(({ n }) => n));
    for (const n of gone) {
      const retired = `${this.#sandbox.checkpoint(n).dir}${retiredMark}`;
      if (n !== last) await removeTree(retired);
      else await Promise.all((await readdir(retired)).map((part) => removeTree(join(retired, part))));
    }
  }

  async #names(): Promise<string[]> {
    try {
      return await readdir(this.#sandbox.checkpointsDir);
    } catch (error) {
      if (hasErrno(error, "ENOENT", "ENOTDIR")) return [];
      throw error;
    }
  }
}

async function verifyFile(n: number, name: string, path: string, { sizeBytes, sha256 }: FileDigest): Promise<void> {
  const size = await stat(path).then(
    (stats) => stats.size,
    () => undefined,
  );
  if (size === undefined) throw unrestorable(n, name, "it is missing");
  if (size !== sizeBytes) throw unrestorable(n, name, `it has ${size} bytes, and ${sizeBytes} were saved`);
  const found = await digestFile(path);
  if (found.sha256 !== sha256) throw unrestorable(n, name, "its contents are not what was saved");
}

async function syncPath(path: string): Promise<void> {
  const file = await open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

function unrestorable(n: number, part: string, because: string, cause?: unknown): SandboxError {
  return new SandboxError("unrestorable", `Cannot use checkpoint ${n}: ${part}: ${because}`, {
    suggestion: "Roll back to another checkpoint. If only the memory is damaged, resume with memory: false.",
    details: { checkpoint: n, part, because },
    cause,
  });
}
