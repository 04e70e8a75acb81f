import { isSandboxError } from "@atoll/protocol";
import type { CallOptions, ObjectStore, ObjectVersion } from "../object-store.ts";
import type { Manifest } from "./choose-expired.ts";
import { readCondemned, writeCondemned } from "./condemned-file.ts";
import { planCollection } from "./plan-collection.ts";
import { readRetired } from "./retired-manifests.ts";

/** These objects; or, of a manifest that cannot tell, everything below these prefixes. */
type Needs = readonly string[] | { below: readonly string[] };

export interface CollectOptions extends CallOptions {
  /** Where objects and all manifests that may need them are. */
  prefixes: readonly string[];
  isManifest: (key: string) => boolean;
  /**
   * Of the form that keys of parts have, to the last character. Whatever else is below the prefixes is not ours and
   * stays.
   */
  isPart: (key: string) => boolean;
  /**
   * What a manifest needs. Throws when it cannot be read; then nothing is removed. One that is too large to be read
   * whole is given without a byte.
   */
  readNeeds: (key: string, data: Buffer) => Needs;
  /** Where the collector keeps its notes, below none of the prefixes. */
  retiredPrefix: string;
  condemnedKey: string;
  nowMs: number;
  /** Longer than anybody takes from reading a manifest until its own is published, by anybody's clock. */
  graceMs: number;
}

/**
 * Removes objects that no manifest has needed for a while, and tells which. May run anywhere at any time, also twice at
 * once, and may die at any moment: it removes only what two looks with the grace between them have shown to be needed
 * by nobody, and only in the version that it looked at.
 */
export async function collectGarbage(store: ObjectStore, options: CollectOptions): Promise<string[]> {
  const { signal, condemnedKey, nowMs, graceMs, retiredPrefix } = options;
  const call = signal === undefined ? {} : { signal };
  const condemned = await readCondemned(store, condemnedKey, call);
  // In this order: a manifest that appears in between needs nothing that is not seen to be needed, and one that goes
  // has left a note.
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

/** False when somebody has removed it or written it anew meanwhile: then it is theirs to decide. */
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
