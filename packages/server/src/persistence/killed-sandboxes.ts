import { isSandboxError, type SandboxId } from "@atoll/protocol";
import type { ObjectInfo, ObjectStore } from "@atoll/storage";
import type { Log } from "../telemetry/log.ts";
import { publishedNumbers } from "./checkpoint-reuse.ts";
import { SandboxHandle, type SandboxStores } from "./sandbox-handle.ts";
import { listSandboxes } from "./sandbox-keys.ts";

/** How long the record of a killed sandbox is kept, for servers that have a copy and are away. */
const rememberedMs = 7 * 24 * 60 * 60_000;

export interface RemoveKilledOptions {
  nowMs: number;
  signal: AbortSignal;
  log: Log;
}

/**
 * Removes what is left of sandboxes that were killed long ago and have no checkpoint any more: the metadata, then the
 * lease. It needs no lease, because no server gets the lease of a killed sandbox. An old lease without metadata was
 * left by a server that crashed in between.
 */
export async function removeLongKilled(
  sandboxStores: SandboxStores,
  options: RemoveKilledOptions,
): Promise<SandboxId[]> {
  const { metadataStore, checkpointStore } = sandboxStores;
  const { nowMs, signal, log } = options;
  const removed: SandboxId[] = [];
  if (metadataStore === undefined || checkpointStore === undefined) return removed;
  const isOld = (info: ObjectInfo): boolean => nowMs - info.modifiedAtMs > rememberedMs;
  for await (const { id, lease, metadata } of listSandboxes(metadataStore, signal)) {
    if (metadata !== undefined) {
      if (!isOld(metadata) || !(await isKilled(sandboxStores, id, { signal, log }))) continue;
      if ((await publishedNumbers(checkpointStore, id, signal)).length > 0) continue;
      await removeVersion(metadataStore, metadata, signal);
      removed.push(id);
    }
    if (lease !== undefined && isOld(lease)) await removeVersion(metadataStore, lease, signal);
  }
  return removed;
}

async function isKilled(
  sandboxStores: SandboxStores,
  id: SandboxId,
  { signal, log }: Pick<RemoveKilledOptions, "signal" | "log">,
): Promise<boolean> {
  try {
    return (await SandboxHandle.read(sandboxStores, id, signal))?.isKilled === true;
  } catch (error) {
    signal.throwIfAborted();
    log.warn({ err: error, sandboxId: id }, "metadata stay: they cannot be read");
    return false;
  }
}

/** Removes an object. One that was rewritten in the meantime is left to the next collection. */
async function removeVersion(store: ObjectStore, { key, version }: ObjectInfo, signal: AbortSignal): Promise<void> {
  try {
    await store.remove(key, { if: version, signal });
  } catch (error) {
    if (!isSandboxError(error, "conflict")) throw error;
  }
}
