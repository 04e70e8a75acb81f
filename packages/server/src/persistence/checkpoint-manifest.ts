import { CheckpointManifest, isSandboxError, SandboxId } from "@atoll/protocol";
import type { Checksum, ObjectStore } from "@atoll/storage";
import { z } from "zod";
import { manifestKey, parsePartKey, partEncodings, type PartRole } from "./checkpoint-keys.ts";
import { unrestorable } from "./checkpoint-refusal.ts";

/** The limit is far above the parts of any checkpoint; a manifest with more was not written by a server. */
const mostParts = 1_000;

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, "64 hexadecimal digits");
const ByteCount = z.int().min(0);

const StoredPart = z.strictObject({
  /** The name of the part in the checkpoint: `memory/<file>`, `owner`, `layer/<id>`. */
  name: z.string().max(100),
  key: z.string().max(900),
  /** The size of the stored bytes. */
  sizeBytes: ByteCount,
  sha256: Sha256,
  encoding: z.enum(partEncodings),
  /** The size of the bytes before they were encoded. */
  originalBytes: ByteCount,
});
export type StoredPart = z.output<typeof StoredPart>;

/** A checkpoint in the store. Its manifest is written last and never replaced: when it exists, all parts do. */
export const StoredCheckpoint = z.strictObject({
  version: z.literal(1),
  sandboxId: SandboxId,
  n: z.int().min(1),
  /**
   * The epoch of the lease under which it was published, for people. Numbers are reserved under the lease: one number
   * means one checkpoint under any epoch.
   */
  epoch: z.int().min(0),
  manifest: CheckpointManifest,
  parts: z.array(StoredPart).min(1).max(mostParts),
});
export type StoredCheckpoint = z.output<typeof StoredCheckpoint>;

/** A part of a checkpoint, with what it contains. */
export interface CheckpointPart {
  name: string;
  role: PartRole;
  original: Checksum;
}

/** Returns all parts of a checkpoint. */
export function partsOf(manifest: CheckpointManifest): CheckpointPart[] {
  const { sandboxId, n, memory, layers, owner } = manifest;
  return [
    ...memory.map(({ name, sizeBytes, sha256 }) => ({
      name: `memory/${name}`,
      role: { kind: "memory", sandboxId, n, name } as const,
      original: { sizeBytes, sha256 },
    })),
    ...(owner === undefined
      ? []
      : [{ name: "owner", role: { kind: "owner", sandboxId, n } as const, original: owner }]),
    ...layers.map((layer) => ({
      name: `layer/${layer.id}`,
      role: { kind: "layer", layer } as const,
      original: { sizeBytes: layer.sizeBytes, sha256: layer.sha256 },
    })),
  ];
}

/**
 * Reads a stored checkpoint. Returns undefined if it was never published or is gone. Rejects with `unrestorable` when
 * the manifest is not plausible.
 */
export async function readStored(
  store: ObjectStore,
  of: { sandboxId: SandboxId; n: number },
  signal: AbortSignal,
): Promise<StoredCheckpoint | undefined> {
  const key = manifestKey(of.sandboxId, of.n);
  const got = await store.get(key, { signal }).catch((error: unknown) => {
    if (isSandboxError(error, "invalid_argument")) throw unrestorable(of, "manifest.json", "it is too large", error);
    throw error;
  });
  return got === undefined ? undefined : parseStored(of, got.data);
}

/**
 * Parses a manifest and trusts nothing in it: a program that can write to the store must not reach anything but this
 * checkpoint with it.
 */
export function parseStored(of: { sandboxId: SandboxId; n: number }, data: Buffer): StoredCheckpoint {
  let stored: StoredCheckpoint;
  try {
    stored = StoredCheckpoint.parse(JSON.parse(data.toString()));
  } catch (cause) {
    throw unrestorable(of, "manifest.json", "it cannot be read", cause);
  }
  for (const { sandboxId, n } of [stored, stored.manifest]) {
    if (sandboxId === of.sandboxId && n === of.n) continue;
    throw unrestorable(of, "manifest.json", `it is that of checkpoint ${n} of sandbox ${sandboxId}`);
  }
  const byName = new Map(stored.parts.map((part) => [part.name, part]));
  const parts = partsOf(stored.manifest);
  for (const part of parts) assertPart(of, part, byName.get(part.name));
  if (byName.size === parts.length && stored.parts.length === parts.length) return stored;
  throw unrestorable(of, "manifest.json", "it names parts that are not of this checkpoint, or one of them twice");
}

function assertPart(
  of: { sandboxId: SandboxId; n: number },
  { name, role, original }: CheckpointPart,
  stored: StoredPart | undefined,
): void {
  if (stored === undefined) throw unrestorable(of, name, "the manifest does not say where it is");
  const named = parsePartKey(role, original, stored.key);
  if (named === undefined) throw unrestorable(of, name, "its key is that of something else");
  const { encoding, sha256, sizeBytes, originalBytes } = stored;
  const isSame = encoding === named.encoding && sha256 === named.sha256;
  const isPlain = encoding !== "plain" || (sizeBytes === originalBytes && sha256 === original.sha256);
  // A part is stored compressed only if that is smaller.
  if (isSame && isPlain && originalBytes === original.sizeBytes && sizeBytes <= originalBytes) return;
  throw unrestorable(of, name, "what the manifest says of it contradicts itself");
}
