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
/** Of a note, behind the prefix. What is called otherwise is not ours. */
const noteNameForm = /^[0-9a-f]{32}$/;

type RetiredManifest = z.output<typeof RetiredManifest>;

/** What is about to be retired, as it was before anybody was asked whether it may go. */
export interface RetirableManifest extends Manifest {
  version: ObjectVersion;
}

interface RetireOptions extends CallOptions {
  retiredPrefix: string;
  nowMs: number;
  /** Has the last word, after the note: false leaves the manifest as it is. */
  mayGo?: (() => Promise<boolean>) | undefined;
}

/**
 * Removes a manifest so that what it needs stays for a while: somebody may have read it a moment ago and be about to
 * need the same. Every removal of a manifest goes this way. False: it is to stay, or was renewed since its version was
 * read. However long it takes from the answer of `mayGo` to the removal, one that somebody has laid claim to meanwhile
 * stays: see `renewManifest`.
 */
export async function retireManifest(
  store: ObjectStore,
  { key, needs, version }: RetirableManifest,
  { retiredPrefix, nowMs, mayGo, ...call }: RetireOptions,
): Promise<boolean> {
  const retired: RetiredManifest = { version: 1, key, needs: [...needs], retiredAtMs: nowMs };
  const name = createHash("sha256").update(key).digest("hex").slice(0, 32);
  // First the note, then the removal: whoever no longer sees the manifest sees the note.
  await store.put(`${retiredPrefix}${name}`, Buffer.from(JSON.stringify(retired)), call);
  if ((await mayGo?.()) === false) return false;
  try {
    await store.remove(key, { ...call, if: version });
    return true;
  } catch (error) {
    if (!isSandboxError(error, "conflict")) throw error;
    // Another collector was as fast, or it is somebody's again.
    return (await store.stat(key, call)) === undefined;
  }
}

/**
 * Writes a manifest once more, as it is. For whoever has just written down, where `mayGo` looks, that it is to stay:
 * those who had looked before that have the version before, and remove nothing with it; those who look from now on are
 * told. False: it was gone already.
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

/** What retired manifests still hold on to, and the notes of those that do no longer. */
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
    throw new SandboxError("storage_failed", `Cannot tell what is still needed: ${key} cannot be read`, { cause });
  }
}
