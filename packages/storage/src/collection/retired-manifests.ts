import { createHash } from "node:crypto";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { z } from "zod";
import type { CallOptions, ObjectStore, ObjectVersion } from "../object-store.ts";
import type { Manifest } from "./choose-expired.ts";

const RetiredManifest = z.strictObject({
  version: z.literal(1),
  key: z.string(),
  needs: z.array(z.string()),
  retiredAtMs: z.number(),
});
/** The form of a note's name, behind the prefix. Other names belong to others. */
const noteNameForm = /^[0-9a-f]{32}$/;

type RetiredManifest = z.output<typeof RetiredManifest>;

/** A manifest that is about to be retired, as it was before `mayGo` was asked. */
export interface RetirableManifest extends Manifest {
  version: ObjectVersion;
}

interface RetireOptions extends CallOptions {
  retiredPrefix: string;
  nowMs: number;
  /** Decides at the end, when the note is written; false leaves the manifest as it is. */
  mayGo?: (() => Promise<boolean>) | undefined;
}

/**
 * Removes a manifest in such a way that what it needs stays for a while: a writer may have read it a moment ago and be
 * about to need the same. Every removal of a manifest uses this function. Returns false if the manifest stays, or was
 * renewed since its version was read. A manifest that was claimed with `renewManifest` stays, however long it takes
 * from the answer of `mayGo` to the removal.
 */
export async function retireManifest(
  store: ObjectStore,
  { key, needs, version }: RetirableManifest,
  { retiredPrefix, nowMs, mayGo, ...call }: RetireOptions,
): Promise<boolean> {
  const retired: RetiredManifest = { version: 1, key, needs: [...needs], retiredAtMs: nowMs };
  const name = createHash("sha256").update(key).digest("hex").slice(0, 32);
  // The note is written before the removal: a reader that no longer finds the manifest finds the note.
  await store.put(`${retiredPrefix}${name}`, Buffer.from(JSON.stringify(retired)), call);
  if ((await mayGo?.()) === false) return false;
  try {
    await store.remove(key, { ...call, if: version });
    return true;
  } catch (error) {
    if (!isSandboxError(error, "conflict")) throw error;
    // Another collector removed it first, or it was renewed.
    return (await store.stat(key, call)) === undefined;
  }
}

/**
 * Writes a manifest once more, unchanged, for a caller that has just recorded, where `mayGo` looks, that the manifest
 * stays. A collector that looked before that has the earlier version and removes nothing with it; one that looks later
 * finds the record. Returns false if the manifest was removed already.
 */
export async function renewManifest(store: ObjectStore, key: string, call: CallOptions = {}): Promise<boolean> {
  for (;;) {
    call.signal?.throwIfAborted();
    const found = await store.get(key, call);
    if (found === undefined) return false;
    try {
      await store.put(key, found.data, { ...call, if: found.info.version });
      return true;
    } catch (error) {
      if (!isSandboxError(error, "conflict")) throw error;
    }
  }
}

/** Reads what retired manifests still protect, and which notes no longer protect anything. */
export async function readRetired(
  store: ObjectStore,
  options: CallOptions & { retiredPrefix: string; nowMs: number; graceMs: number },
): Promise<{ holding: Manifest[]; over: string[] }> {
  const { retiredPrefix, nowMs, graceMs, ...call } = options;
  const holding: Manifest[] = [];
  const over: string[] = [];
  for await (const { key } of store.list(retiredPrefix, call)) {
    const got = noteNameForm.test(key.slice(retiredPrefix.length)) ? await store.get(key, call) : undefined;
    if (got === undefined) continue;
    const { needs, retiredAtMs } = parseRetired(key, got.data);
    if (nowMs - retiredAtMs < graceMs) holding.push({ key, needs });
    else over.push(key);
  }
  return { holding, over };
}

function parseRetired(key: string, data: Buffer): RetiredManifest {
  try {
    return RetiredManifest.parse(JSON.parse(data.toString()));
  } catch (cause) {
    throw new SandboxError("storage_failed", `Cannot find out what is still needed: ${key} cannot be read`, { cause });
  }
}
