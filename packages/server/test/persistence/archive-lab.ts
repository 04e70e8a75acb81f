import { createHash, randomBytes } from "node:crypto";
import { access, constants, mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CheckpointFiles, CheckpointImport, Engine, Sandbox, SandboxImport } from "@atoll/engine";
import {
  CheckpointManifest,
  LayerId,
  SandboxError,
  SandboxId,
  type ImportedRecord,
  type LayerPart,
} from "@atoll/protocol";
import { FileObjectStore, type ObjectStore } from "@atoll/storage";
import { onTestFinished } from "vitest";
import { CheckpointArchive } from "../../src/persistence/checkpoint-archive.ts";
import { createLog } from "../../src/telemetry/log.ts";

export const log = createLog("silent");
export const sandboxId = SandboxId.parse("a".repeat(20));
export const otherId = SandboxId.parse("b".repeat(20));

const checksumOf = (data: Buffer): { sizeBytes: number; sha256: string } => ({
  sizeBytes: data.length,
  sha256: createHash("sha256").update(data).digest("hex"),
});

export async function makeDirectory(parent: string = tmpdir()): Promise<string> {
  const dir = await mkdtemp(join(parent, "atoll-archive-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/**
 * The part of an engine that moves checkpoints: files in a directory; imported files are compared with their manifest.
 */
export class FakeEngine implements Pick<
  Engine,
  "checkpointFiles" | "packLayer" | "hasLayer" | "importSandbox" | "importCheckpoint"
> {
  readonly imported: CheckpointManifest[] = [];
  packed = 0;
  readonly #dir: string;
  readonly #checkpoints = new Map<string, CheckpointFiles>();
  readonly #layers = new Map<string, Buffer>();

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Adds a layer of this engine with these bytes. */
  layer(name: string, data: Buffer): LayerPart {
    const part = { id: LayerId.parse(name), ...checksumOf(data) };
    this.#layers.set(keyOf(part), data);
    return part;
  }

  async checkpoint(
    id: SandboxId,
    n: number,
    content: { layers: LayerPart[]; memory?: Record<string, Buffer>; owner?: Buffer; createdAtMs?: number },
  ): Promise<CheckpointManifest> {
    const dir = await mkdtemp(join(this.#dir, "checkpoint-"));
    const images = Object.entries(content.memory ?? { "checkpoint.img": randomBytes(20_000) });
    for (const [name, data] of images) await writeFile(join(dir, name), data);
    if (content.owner !== undefined) await writeFile(join(dir, "owner.tar"), content.owner);
    const manifest = CheckpointManifest.parse({
      version: 1,
      sandboxId: id,
      n,
      parent: n === 1 ? null : n - 1,
      createdAtMs: content.createdAtMs ?? 1_000 * n,
      driver: "gvisor",
      template: "host",
      guest: "0123456789abcdef",
      runtime: { version: "release-1", platform: "systrap" },
      cpuFeatures: ["sse"],
      memory: images.map(([name, data]) => ({ name, ...checksumOf(data) })),
      layers: content.layers,
      phases: { save: 1.5 },
      ...(content.owner === undefined ? {} : { owner: checksumOf(content.owner) }),
    });
    this.#checkpoints.set(`${id}/${n}`, {
      manifest,
      memory: images.map(([name]) => ({ name, path: join(dir, name) })),
      owner: content.owner === undefined ? undefined : join(dir, "owner.tar"),
    });
    return manifest;
  }

  async checkpointFiles(id: SandboxId, n: number): Promise<CheckpointFiles> {
    const files = this.#checkpoints.get(`${id}/${n}`);
    if (files === undefined) throw new SandboxError("unrestorable", `Cannot find checkpoint ${n} of ${id}`);
    return files;
  }

  async packLayer(part: LayerPart, toPath: string): Promise<void> {
    const data = this.#layers.get(keyOf(part));
    if (data === undefined) throw new SandboxError("unrestorable", `Cannot find layer ${part.id}`);
    this.packed += 1;
    await writeFile(toPath, data, { flag: "wx" });
  }

  async hasLayer(part: LayerPart): Promise<boolean> {
    return this.#layers.has(keyOf(part));
  }

  async importSandbox(from: SandboxImport): Promise<Sandbox> {
    await this.importCheckpoint(from.manifest.sandboxId, from);
    return { id: from.manifest.sandboxId } as Sandbox;
  }

  async importCheckpoint(_: SandboxId, { manifest, memoryDir, owner, layers }: CheckpointImport): Promise<void> {
    for (const part of manifest.memory) await assertFile(join(memoryDir, part.name), part);
    if (manifest.owner !== undefined) await assertFile(owner ?? "", manifest.owner);
    const archives = await Promise.all(
      layers.map(async ({ part, archive }) => ({ part, data: await assertFile(archive, part) })),
    );
    const lacking = manifest.layers.filter(
      (part) => !this.#layers.has(keyOf(part)) && !layers.some((given) => given.part.id === part.id),
    );
    if (lacking.length > 0) throw new SandboxError("unrestorable", "Cannot import: layers are missing");
    for (const { part, data } of archives) this.#layers.set(keyOf(part), data);
    await mkdir(this.#dir, { recursive: true });
    await rename(memoryDir, join(this.#dir, `imported-${manifest.sandboxId}-${manifest.n}`));
    this.imported.push(manifest);
  }
}

const keyOf = ({ id, sha256 }: LayerPart): string => `${id} ${sha256}`;

async function assertFile(path: string, expected: { sizeBytes: number; sha256: string }): Promise<Buffer> {
  const data = await readFile(path);
  const found = checksumOf(data);
  if (found.sizeBytes !== expected.sizeBytes || found.sha256 !== expected.sha256) {
    throw new SandboxError("unrestorable", `Cannot import: ${path} is not what was saved`);
  }
  return data;
}

export const recordOf = (id: SandboxId): ImportedRecord => ({
  id,
  driver: "gvisor",
  template: "host" as ImportedRecord["template"],
  limits: {} as ImportedRecord["limits"],
  createdAtMs: 1,
  labels: {},
});

/**
 * Opens a store that is removed with the test. It is in memory where the machine has such a file system, because these
 * tests do not depend on a loss of power.
 */
export async function makeStore(): Promise<FileObjectStore> {
  const memory = "/dev/shm";
  const isThere = await access(memory, constants.W_OK).then(
    () => true,
    () => false,
  );
  const store = await FileObjectStore.open(join(await makeDirectory(isThere ? memory : tmpdir()), "store"));
  onTestFinished(() => store.close());
  return store;
}

export interface Machine {
  engine: FakeEngine;
  archive: CheckpointArchive;
  scratchDir: string;
}

/** The part of a server that moves checkpoints. */
export async function makeMachine(store: ObjectStore): Promise<Machine> {
  const dir = await makeDirectory();
  const engine = new FakeEngine(dir);
  const scratchDir = join(dir, "transfers");
  return { engine, scratchDir, archive: await CheckpointArchive.open({ store, engine, scratchDir, log }) };
}
