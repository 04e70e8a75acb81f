import { copyFile, cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Engine, Sandbox, SandboxImport } from "@atoll/engine";
import { ImportedRecord, type SandboxId } from "@atoll/protocol";
import { makeDataDir } from "./test-root.ts";

/**
 * A signal that never aborts: the processes of these tests are quick, and the deadline of the test ends one that hangs.
 */
const signal = new AbortController().signal;

/** Packs what another engine needs of a paused sandbox into one directory, except the layers in `has`. */
export async function packSandbox(
  engine: Engine,
  id: SandboxId,
  has: (part: SandboxImport["layers"][number]["part"]) => Promise<boolean> = async () => false,
): Promise<string> {
  const { record } = engine.get(id);
  if (record.state !== "paused") throw new Error(`A ${record.state} sandbox cannot be packed`);
  const { driver, template, limits, createdAtMs, labels } = record;
  const { manifest, memory, owner } = await engine.checkpointFiles(id, record.checkpoint);
  const dir = await makeDataDir();
  await mkdir(join(dir, "memory"));
  for (const { name, path } of memory) await copyFile(path, join(dir, "memory", name));
  if (owner !== undefined) await copyFile(owner, join(dir, "owner"));
  const layers = [];
  for (const part of manifest.layers) {
    if (await has(part)) continue;
    await engine.packLayer(part, join(dir, part.id), { signal });
    layers.push({ part, archive: part.id });
  }
  const portable = ImportedRecord.parse({ id, driver, template, limits, createdAtMs, labels });
  const listed = { record: portable, manifest, owner: owner === undefined ? undefined : "owner", layers };
  await writeFile(join(dir, "package.json"), JSON.stringify(listed));
  return dir;
}

export async function readPackage(dir: string): Promise<SandboxImport> {
  const listed = JSON.parse(await readFile(join(dir, "package.json"), "utf8")) as SandboxImport;
  return {
    ...listed,
    memoryDir: join(dir, "memory"),
    ...(listed.owner === undefined ? {} : { owner: join(dir, listed.owner) }),
    layers: listed.layers.map(({ part, archive }) => ({ part, archive: join(dir, archive) })),
  };
}

/** Runs `use` with a copy of a package, because an import consumes the package. */
export async function withCopy<T>(dir: string, use: (copy: string) => Promise<T>): Promise<T> {
  const copy = await makeDataDir();
  try {
    await cp(dir, copy, { recursive: true });
    return await use(copy);
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}

/** Moves a paused sandbox from one engine to another, as servers do. Returns the layers that had to be copied. */
export async function transferSandbox(
  from: Engine,
  to: Engine,
  id: SandboxId,
): Promise<{ sandbox: Sandbox; layers: string[] }> {
  const dir = await packSandbox(from, id, (part) => to.hasLayer(part));
  try {
    const packed = await readPackage(dir);
    const sandbox = await to.importSandbox(packed);
    await from.release(id);
    return { sandbox, layers: packed.layers.map(({ part }) => part.id) };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
