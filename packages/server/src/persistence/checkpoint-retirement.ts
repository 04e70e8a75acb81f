import { isSandboxError, type SandboxId } from "@atoll/protocol";
import { retireManifest, type ObjectStore } from "@atoll/storage";
import { manifestKey, retiredPrefix } from "./checkpoint-keys.ts";
import { readStored, type StoredCheckpoint } from "./checkpoint-manifest.ts";

/** The keys of everything that a checkpoint needs. */
export const needsOf = (stored: StoredCheckpoint): string[] => stored.parts.map(({ key }) => key);

/** Gives up a stored checkpoint; what nobody else needs of it is collected later. Idempotent, and also for one that cannot be read. False: `mayGo` says that it is to stay. */
export async function retireStored(
  store: ObjectStore,
  of: { sandboxId: SandboxId; n: number },
  { signal, nowMs, mayGo }: { signal: AbortSignal; nowMs: number; mayGo?: () => Promise<boolean> },
): Promise<boolean> {
  const stored = await readStored(store, of, signal).catch((error: unknown) => {
    if (isSandboxError(error, "unrestorable")) return "unreadable" as const;
    throw error;
  });
  if (stored === undefined) return true;
  const needs = stored === "unreadable" ? [] : needsOf(stored);
  const key = manifestKey(of.sandboxId, of.n);
  return retireManifest(store, { key, needs }, { signal, nowMs, retiredPrefix, mayGo });
}
