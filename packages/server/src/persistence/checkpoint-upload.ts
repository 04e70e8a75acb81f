import { join } from "node:path";
import type { Engine } from "@atoll/engine";
import { SandboxError, type LayerPart } from "@atoll/protocol";
import type { Checksum, ObjectStore } from "@atoll/storage";
import { doesCompressionPay, encodeFile } from "./checkpoint-encoding.ts";
import { newPartKey, type PartEncoding } from "./checkpoint-keys.ts";
import type { CheckpointPart, StoredPart } from "./checkpoint-manifest.ts";
import type { CheckpointScratch } from "./checkpoint-scratch.ts";

/** A part and the source of its bytes: a file, or a layer that has to be packed first. */
export interface PartSource extends CheckpointPart {
  from: { path: string } | { layer: LayerPart };
}

export interface UploadContext {
  store: ObjectStore;
  engine: Pick<Engine, "packLayer">;
  scratch: CheckpointScratch;
}

/** Stores one part under a new key, compressed if that pays. */
export async function uploadPart(
  { store, engine, scratch }: UploadContext,
  source: PartSource,
  signal: AbortSignal,
): Promise<StoredPart> {
  const { from, original } = source;
  const mostBytes = "layer" in from ? 2 * original.sizeBytes : original.sizeBytes;
  await using space = await scratch.take(mostBytes);
  const path = "path" in from ? from.path : join(space.path, "layer");
  if ("layer" in from) await engine.packLayer(from.layer, path, { signal });
  const plain: Encoded = { path, encoding: "plain", checksum: original };
  const smaller = (await doesCompressionPay(path, original.sizeBytes))
    ? await compressed(source, path, join(space.path, "encoded"), signal)
    : undefined;
  const { path: stored, encoding, checksum } = smaller ?? plain;
  const key = newPartKey(source.role, original, encoding, checksum.sha256);
  await store.upload(key, stored, { ...checksum, signal });
  return { name: source.name, key, ...checksum, encoding, originalBytes: original.sizeBytes };
}

interface Encoded {
  path: string;
  encoding: PartEncoding;
  checksum: Checksum;
}

/** Compresses a part. Returns undefined if the result is not smaller, although the sample was. */
async function compressed(
  { name, original: expected }: PartSource,
  path: string,
  toPath: string,
  signal: AbortSignal,
): Promise<Encoded | undefined> {
  const { original, encoded } = await encodeFile(path, toPath, signal);
  if (original.sizeBytes !== expected.sizeBytes || original.sha256 !== expected.sha256) {
    throw new SandboxError("storage_failed", `Cannot store ${name}: its bytes are not what was saved`, {
      suggestion: "The disk of the data directory may be damaged; roll back to an earlier checkpoint.",
      details: { part: name, expected, actual: original },
    });
  }
  return encoded.sizeBytes < expected.sizeBytes ? { path: toPath, encoding: "br", checksum: encoded } : undefined;
}
