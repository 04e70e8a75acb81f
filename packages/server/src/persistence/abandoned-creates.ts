import { isSandboxError, type SandboxId } from "@atoll/protocol";
import type { LocalCopies } from "./local-copies.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle } from "./sandbox-handle.ts";
import type { SandboxMetadata } from "./sandbox-metadata.ts";

export interface AbandonedCreateOptions extends Pick<PersistenceOptions, "sandboxStores" | "self"> {
  copies: Pick<LocalCopies, "find">;
  signal: AbortSignal;
}

/**
 * Removes what is stored of a sandbox whose creation was interrupted, and whose local part this server has removed: its
 * metadata say that it runs here, it was never stored, and no client knows of it. This is done under its lease. Returns
 * false if the lease is not available yet.
 */
export async function removeAbandonedCreate(id: SandboxId, options: AbandonedCreateOptions): Promise<boolean> {
  const { sandboxStores, self, copies, signal } = options;
  const isAbandoned = ({ isKilled, state, server, checkpoint }: SandboxMetadata): boolean =>
    !isKilled &&
    state === "running" &&
    server.id === self().id &&
    checkpoint === undefined &&
    copies.find(id) === undefined;
  const metadata = await SandboxHandle.read(sandboxStores, id, signal);
  if (metadata === undefined || !isAbandoned(metadata)) return true;
  try {
    const handle = await SandboxHandle.attachPersistent(sandboxStores, id, { patienceMs: 0, signal });
    await (isAbandoned(handle.metadata) ? handle.remove() : handle.release());
    return true;
  } catch (error) {
    if (isSandboxError(error, "not_found")) return true;
    if (isSandboxError(error, "in_use")) return false;
    throw error;
  }
}
