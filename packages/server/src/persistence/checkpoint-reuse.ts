import { isSandboxError, SandboxId, type CheckpointManifest, type LayerPart } from "@atoll/protocol";
import type { ObjectInfo, ObjectStore } from "@atoll/storage";
import { checkpointPrefix, parseManifestKey, parsePartKey, partPrefix, sandboxPrefix } from "./checkpoint-keys.ts";
import {
  partsOf,
  readStored,
  type CheckpointPart,
  type StoredCheckpoint,
  type StoredPart,
} from "./checkpoint-manifest.ts";
import { reusableMs } from "./checkpoint-timing.ts";

interface CheckpointName {
  sandboxId: SandboxId;
  n: number;
}

/**
 * Returns, by name, the parts of a checkpoint that are in the store and stay there until its manifest can be published.
 * A manifest that was read keeps its parts, also if it is retired in the meantime; a part that no manifest names, as
 * interrupted uploads leave it, may be condemned unless it is young.
 */
export async function findReusable(
  store: ObjectStore,
  manifest: CheckpointManifest,
  { signal, nowMs }: { signal: AbortSignal; nowMs: number },
): Promise<Map<string, StoredPart>> {
  const found = new Map<string, StoredPart>();
  const parts = partsOf(manifest);
  const missing = (): CheckpointPart[] => parts.filter(({ name }) => !found.has(name));
  const isInherited = ({ role }: CheckpointPart): boolean =>
    role.kind === "layer" && !madeWith(role.layer).some((name) => nameOf(name) === nameOf(manifest));

  const isFirst = !parts.some(isInherited);
  for await (const relative of isFirst ? [] : relatives(store, manifest, signal)) {
    const shared = missing().flatMap((part) => {
      const stored = isInherited(part) ? relative.parts.find(({ name }) => name === part.name) : undefined;
      return stored === undefined || parsePartKey(part.role, part.original, stored.key) === undefined ? [] : [stored];
    });
    await Promise.all(
      shared.map(async (stored) => {
        const info = await store.stat(stored.key, { signal });
        if (info?.sizeBytes === stored.sizeBytes) found.set(stored.name, stored);
      }),
    );
    if (!missing().some(isInherited)) break;
  }

  const missingLayers = missing().filter(({ role }) => role.kind === "layer");
  const prefixes = [
    checkpointPrefix(manifest.sandboxId, manifest.n),
    ...missingLayers.map(({ role }) => partPrefix(role)),
  ];
  await Promise.all(
    prefixes.map(async (prefix) => {
      for await (const info of store.list(prefix, { signal })) {
        if (Math.abs(nowMs - info.modifiedAtMs) > reusableMs) continue;
        for (const part of missing()) {
          const stored = describeLeftover(part, info);
          if (stored !== undefined) found.set(part.name, stored);
        }
      }
    }),
  );
  return found;
}

const nameOf = ({ sandboxId, n }: CheckpointName): string => `${sandboxId}/${n}`;

/** Returns the checkpoint that a layer was made with; none if the layer is older than the sandbox. */
function madeWith({ id }: LayerPart): CheckpointName[] {
  const [first, n] = id.split("-");
  const sandboxId = SandboxId.safeParse(first);
  return sandboxId.success ? [{ sandboxId: sandboxId.data, n: Number(n) }] : [];
}

function describeLeftover({ name, role, original }: CheckpointPart, info: ObjectInfo): StoredPart | undefined {
  const named = parsePartKey(role, original, info.key);
  const isPossible =
    named?.encoding === "plain" ? info.sizeBytes === original.sizeBytes : info.sizeBytes <= original.sizeBytes;
  if (named === undefined || !isPossible) return undefined;
  return { name, key: info.key, sizeBytes: info.sizeBytes, ...named, originalBytes: original.sizeBytes };
}

/** Yields published checkpoints that are likely to have the same layers, the likeliest first. */
async function* relatives(
  store: ObjectStore,
  manifest: CheckpointManifest,
  signal: AbortSignal,
): AsyncIterable<StoredCheckpoint> {
  const { sandboxId, parent, origin, layers } = manifest;
  const seen = new Set([nameOf(manifest)]);
  const read = async (name: CheckpointName): Promise<StoredCheckpoint | undefined> => {
    if (seen.has(nameOf(name))) return undefined;
    seen.add(nameOf(name));
    return readStored(store, name, signal).catch((error: unknown) => {
      if (isSandboxError(error, "unrestorable")) return undefined;
      throw error;
    });
  };
  const named = [
    ...(parent === null ? [] : [{ sandboxId, n: parent }]),
    ...(origin === undefined ? [] : [origin]),
    ...layers.flatMap(madeWith),
  ];
  for (const name of named) {
    const stored = await read(name);
    if (stored !== undefined) yield stored;
  }
  const newest = (await publishedNumbers(store, sandboxId, signal)).at(-1);
  const stored = newest === undefined ? undefined : await read({ sandboxId, n: newest });
  if (stored !== undefined) yield stored;
}

/** Returns the numbers of all manifests of a sandbox in order, also of unreadable ones. */
export async function publishedNumbers(store: ObjectStore, id: SandboxId, signal: AbortSignal): Promise<number[]> {
  const numbers: number[] = [];
  for await (const { key } of store.list(sandboxPrefix(id), { signal })) {
    const named = parseManifestKey(key);
    if (named !== undefined) numbers.push(named.n);
  }
  return numbers.toSorted((one, two) => one - two);
}
