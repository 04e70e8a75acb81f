import { isSandboxError, type SandboxId } from "@atoll/protocol";
import type { ObjectInfo, ObjectStore } from "@atoll/storage";
import type { Log } from "../telemetry/log.ts";
import { publishedNumbers } from "./checkpoint-reuse.ts";
import { SandboxHandle, type HandleHome } from "./sandbox-handle.ts";
import { listSandboxes } from "./sandbox-keys.ts";

/** How long it stays known that a sandbox was killed, for servers that have a copy and are away. */
const rememberedMs = 7 * 24 * 60 * 60_000;

export interface RemoveKilledOptions {
  nowMs: number;
  signal: AbortSignal;
  log: Log;
}

/**
 * Removes what is left of sandboxes that were killed long ago and have no checkpoint any more: the metadata, then the
 * lease. It needs none to do so, since nobody gets that of a killed one. A lease without metadata that nobody writes to
 * is what is left when somebody died in between.
 */
export async function removeLongKilled(home: HandleHome, options: RemoveKilledOptions): Promise<SandboxId[]> {
  const { metadataStore, checkpointStore } = home;
  const { nowMs, signal, log } = options;
  const removed: SandboxId[] = [];
  if (metadataStore === undefined || checkpointStore === undefined) return removed;
  const isOld = (info: ObjectInfo): boolean => nowMs - info.modifiedAtMs > rememberedMs;
  for await (const { id, lease, metadata } of listSandboxes(metadataStore, signal)) {
    if (metadata !== undefined) {
      if (!isOld(metadata) || !(await isKilled(home, id, { signal, log }))) continue;
      if ((await publishedNumbers(checkpointStore, id, signal)).length > 0) continue;
      await removeVersion(metadataStore, metadata, signal);
      removed.push(id);
    }
    if (lease !== undefined && isOld(lease)) await removeVersion(metadataStore, lease, signal);
  }
  return removed;
}

async function isKilled(
  home: HandleHome,
  id: SandboxId,
  { signal, log }: Pick<RemoveKilledOptions, "signal" | "log">,
): Promise<boolean> {
  try {
    return (await SandboxHandle.read(home, id, signal))?.isKilled === true;
  } catch (error) {
    signal.throwIfAborted();
    log.warn({ err: error, sandboxId: id }, "metadata stay: they cannot be read");
    return false;
  }
}

/** What was written anew meanwhile is left to the next look. */
async function removeVersion(store: ObjectStore, { key, version }: ObjectInfo, signal: AbortSignal): Promise<void> {
  try {
    await store.remove(key, { if: version, signal });
  } catch (error) {
    if (!isSandboxError(error, "conflict")) throw error;
  }
}
