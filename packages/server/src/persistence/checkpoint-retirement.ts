import { isSandboxError, type SandboxId } from "@atoll/protocol";
import { retireManifest, type ObjectStore } from "@atoll/storage";
import { manifestKey, retiredPrefix } from "./checkpoint-keys.ts";
import { readStored, type StoredCheckpoint } from "./checkpoint-manifest.ts";

/** The keys of everything that a checkpoint needs. */
export const needsOf = (stored: StoredCheckpoint): string[] => stored.parts.map(({ key }) => key);

/** Gives up a stored checkpoint; what nobody else needs of it is collected later. Idempotent, and also for one that cannot be read. */
export async function retireStored(
  store: ObjectStore,
  of: { sandboxId: SandboxId; n: number },
  { signal, nowMs }: { signal: AbortSignal; nowMs: number },
): Promise<void> {
  const stored = await readStored(store, of, signal).catch((error: unknown) => {
    if (isSandboxError(error, "unrestorable")) return "unreadable" as const;
    throw error;
  });
  if (stored === undefined) return;
  const needs = stored === "unreadable" ? [] : needsOf(stored);
  await retireManifest(store, { key: manifestKey(of.sandboxId, of.n), needs }, { signal, nowMs, retiredPrefix });
}
