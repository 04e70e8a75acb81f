import { rm } from "node:fs/promises";
import { isSandboxError, type SandboxId } from "@atoll/protocol";
import type { ObjectStore } from "@atoll/storage";
import { decodeFile, isBadEncoding, TooManyBytes } from "./checkpoint-encoding.ts";
import type { CheckpointPart, StoredPart } from "./checkpoint-manifest.ts";
import { unrestorable } from "./checkpoint-refusal.ts";

/**
 * Downloads one part and decodes it. Nothing is left when it rejects. It rejects with `unrestorable` when the part is
 * not what was stored.
 */
export async function downloadPart(
  store: ObjectStore,
  of: { sandboxId: SandboxId; n: number },
  { name, original, stored }: CheckpointPart & { stored: StoredPart },
  { toPath, landingPath, signal }: { toPath: string; landingPath: string; signal: AbortSignal },
): Promise<void> {
  const { key, sizeBytes, sha256, encoding } = stored;
  const landing = encoding === "plain" ? toPath : landingPath;
  try {
    await store.download(key, landing, { sizeBytes, sha256, signal });
  } catch (error) {
    if (isSandboxError(error, "not_found")) throw unrestorable(of, name, "it is missing from the store", error);
    const isOther = isSandboxError(error, "storage_failed") && "actual" in error.details;
    if (isOther) throw unrestorable(of, name, "its bytes are not what was stored", error);
    throw error;
  }
  if (encoding === "plain") return;
  try {
    const found = await decodeFile(landing, toPath, { mostBytes: original.sizeBytes, signal });
    if (found.sizeBytes === original.sizeBytes && found.sha256 === original.sha256) return;
    throw unrestorable(of, name, "its bytes are not what was saved");
  } catch (error) {
    await rm(toPath, { force: true });
    if (error instanceof TooManyBytes) throw unrestorable(of, name, "it has more bytes than were saved", error);
    if (isBadEncoding(error)) throw unrestorable(of, name, "it cannot be decompressed", error);
    throw error;
  } finally {
    await rm(landing, { force: true });
  }
}
