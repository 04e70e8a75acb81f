import { isSandboxError, type SandboxId } from "@atoll/protocol";
import { retireManifest, type ObjectStore } from "@atoll/storage";
import { manifestKey, retiredPrefix } from "./checkpoint-keys.ts";
import { readStored, type StoredCheckpoint } from "./checkpoint-manifest.ts";

/** The keys of everything that a checkpoint needs. */
export const needsOf = (stored: StoredCheckpoint): string[] => stored.parts.map(({ key }) => key);

/**
 * The result of a removal. `kept` means that `mayGo` refused, or that a server pinned the checkpoint after `mayGo` was
 * called.
 */
export type Retirement = "absent" | "gone" | "kept";

/**
 * Retires a stored checkpoint; parts that no other checkpoint needs are collected later. Repeated calls are allowed,
 * also for an unreadable checkpoint.
 */
export async function retireStored(
  store: ObjectStore,
  of: { sandboxId: SandboxId; n: number },
  { signal, nowMs, mayGo }: { signal: AbortSignal; nowMs: number; mayGo?: () => Promise<boolean> },
): Promise<Retirement> {
  const key = manifestKey(of.sandboxId, of.n);
  // The version has to be read before `mayGo` is called.
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
