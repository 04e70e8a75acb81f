import { createHash } from "node:crypto";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import type { CallOptions, ObjectStore } from "../object-store.ts";
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

/**
 * Removes a manifest so that what it needs stays for a while: somebody may have read it a moment ago and be about to need the
 * same. Every removal of a manifest goes this way. Idempotent. `mayGo` has the last word, after the note: false leaves the manifest as it is.
 */
export async function retireManifest(
  store: ObjectStore,
  manifest: Manifest,
  options: CallOptions & { retiredPrefix: string; nowMs: number; mayGo?: (() => Promise<boolean>) | undefined },
): Promise<boolean> {
  const { retiredPrefix, nowMs, mayGo, ...call } = options;
  const retired: RetiredManifest = {
    version: 1,
    key: manifest.key,
    needs: [...manifest.needs],
    retiredAtMs: nowMs,
  };
  const name = createHash("sha256").update(manifest.key).digest("hex").slice(0, 32);
  // First the note, then the removal: whoever no longer sees the manifest sees the note.
  await store.put(`${retiredPrefix}${name}`, Buffer.from(JSON.stringify(retired)), call);
  if ((await mayGo?.()) === false) return false;
  await store.remove(manifest.key, call);
  return true;
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
