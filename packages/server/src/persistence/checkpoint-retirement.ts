import { isSandboxError, type SandboxId } from "@atoll/protocol";
import { retireManifest, type ObjectStore } from "@atoll/storage";
import { manifestKey, retiredPrefix } from "./checkpoint-keys.ts";
import { readStored, type StoredCheckpoint } from "./checkpoint-manifest.ts";

/** The keys of everything that a checkpoint needs. */
export const needsOf = (stored: StoredCheckpoint): string[] => stored.parts.map(({ key }) => key);

/** `kept`: `mayGo` says that it is to stay, or somebody laid claim to it after that was asked. */
export type Retirement = "absent" | "gone" | "kept";

/**
 * Gives up a stored checkpoint; what nobody else needs of it is collected later. Idempotent, and also for one that
 * cannot be read.
 */
export async function retireStored(
  store: ObjectStore,
  of: { sandboxId: SandboxId; n: number },
  { signal, nowMs, mayGo }: { signal: AbortSignal; nowMs: number; mayGo?: () => Promise<boolean> },
): Promise<Retirement> {
  const key = manifestKey(of.sandboxId, of.n);
  // Before `mayGo` is asked, as retiring demands.
  const version = (await store.stat(key, { signal }))?.version;
  if (version === undefined) return "absent";
  const stored = await readStored(store, of, signal).catch((error: unknown) => {
    if (isSandboxError(error, "unrestorable")) return "unreadable" as const;
    throw error;
  });
  if (stored === undefined) return "absent";
  const needs = stored === "unreadable" ? [] : needsOf(stored);
  const isGone = await retireManifest(store, { key, needs, version }, { signal, nowMs, retiredPrefix, mayGo });
  return isGone ? "gone" : "kept";
}
