import { isSandboxError } from "@atoll/protocol";
import type { CallOptions, ObjectStore, ObjectVersion } from "../object-store.ts";
import type { Manifest } from "./choose-expired.ts";
import { readCondemned, writeCondemned } from "./condemned-file.ts";
import { planCollection } from "./plan-collection.ts";
import { readRetired } from "./retired-manifests.ts";

/**
 * The keys that a manifest needs. If the manifest cannot be read for its size, these are all keys below some prefixes.
 */
type Needs = readonly string[] | { below: readonly string[] };

export interface CollectOptions extends CallOptions {
  /** The prefixes of the objects, and of all manifests that may need them. */
  prefixes: readonly string[];
  isManifest: (key: string) => boolean;
  /**
   * Whether a key has exactly the form of a part's key. Everything else below the prefixes belongs to others and stays.
   */
  isPart: (key: string) => boolean;
  /**
   * Returns what a manifest needs. If it throws because the manifest cannot be read, nothing is removed. For a manifest
   * that is too large to be read whole, `data` is empty.
   */
  readNeeds: (key: string, data: Buffer) => Needs;
  /** Where the collector keeps its notes. It must not be below one of the prefixes. */
  retiredPrefix: string;
  condemnedKey: string;
  nowMs: number;
  /** More time than any writer takes from reading a manifest until its own is published, by any server's clock. */
  graceMs: number;
}

/**
 * Removes objects that no manifest has needed for the grace, and returns their keys. It may run anywhere at any time,
 * also twice at once, and may be killed at any moment. It removes an object only if two passes with the grace between
 * them found that no manifest needs it, and only the version that it saw.
 */
export async function collectGarbage(store: ObjectStore, options: CollectOptions): Promise<string[]> {
  const { signal, condemnedKey, nowMs, graceMs, retiredPrefix } = options;
  const call = signal === undefined ? {} : { signal };
  const condemned = await readCondemned(store, condemnedKey, call);
  // This order is safe: a manifest that appears between the two reads needs only objects that another manifest is seen
  // to need, and a manifest that is removed between them has left a note.
  const versions = await listObjects(store, options, call);
  const manifests = await readManifests(store, { ...options, objects: [...versions.keys()] }, call);
  const retired = await readRetired(store, { ...call, retiredPrefix, nowMs, graceMs });

  const plan = planCollection({
    manifests: [...manifests, ...retired.holding],
    objects: [...versions.keys()],
    condemned: condemned.sinceMs,
    nowMs,
    graceMs,
  });
  const removed: string[] = [];
  for (const key of plan.remove) {
    signal?.throwIfAborted();
    if (await removeVersion(store, key, versions.get(key), call)) removed.push(key);
    plan.condemned.delete(key);
  }
  await writeCondemned(store, condemnedKey, { sinceMs: plan.condemned, version: condemned.version }, call);
  for (const key of retired.over) await store.remove(key, call);
  return removed;
}

async function listObjects(
  store: ObjectStore,
  { prefixes, isPart }: CollectOptions,
  call: CallOptions,
): Promise<Map<string, ObjectVersion>> {
  const versions = new Map<string, ObjectVersion>();
  for (const prefix of prefixes) {
    for await (const { key, version } of store.list(prefix, call)) if (isPart(key)) versions.set(key, version);
  }
  return versions;
}

async function readManifests(
  store: ObjectStore,
  { isManifest, prefixes, readNeeds, objects }: CollectOptions & { objects: readonly string[] },
  call: CallOptions,
): Promise<Manifest[]> {
  const manifests: Manifest[] = [];
  for (const prefix of prefixes) {
    for await (const { key } of store.list(prefix, call)) {
      const data = isManifest(key) ? await readSmall(store, key, call) : undefined;
      if (data !== undefined) manifests.push({ key, needs: named(readNeeds(key, data), objects) });
    }
  }
  return manifests;
}

async function readSmall(store: ObjectStore, key: string, call: CallOptions): Promise<Buffer | undefined> {
  try {
    return (await store.get(key, call))?.data;
  } catch (error) {
    if (isSandboxError(error, "invalid_argument")) return Buffer.alloc(0);
    throw error;
  }
}

function named(needs: Needs, objects: readonly string[]): readonly string[] {
  if (!("below" in needs)) return needs;
  return objects.filter((key) => needs.below.some((prefix) => key.startsWith(prefix)));
}

/** Returns false if the object was removed or written again since it was read: the new version is not garbage. */
async function removeVersion(
  store: ObjectStore,
  key: string,
  version: ObjectVersion | undefined,
  call: CallOptions,
): Promise<boolean> {
  try {
    return await store.remove(key, version === undefined ? call : { ...call, if: version });
  } catch (error) {
    if (isSandboxError(error, "conflict")) return false;
    throw error;
  }
}
