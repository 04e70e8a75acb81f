import { isSandboxError, type SandboxId } from "@atoll/protocol";
import type { LocalCopies } from "./local-copies.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle } from "./sandbox-handle.ts";
import type { SandboxMetadata } from "./sandbox-metadata.ts";

export interface AbandonedCreateOptions extends Pick<PersistenceOptions, "home" | "self"> {
  copies: Pick<LocalCopies, "find">;
  signal: AbortSignal;
}

/**
 * Removes what is stored of a sandbox whose creation was cut off, and which this server has found here and removed: its
 * metadata say that it runs here, it was never stored, and nobody was told of it. Done under its lease. False: that is
 * not to be had yet.
 */
export async function removeAbandonedCreate(id: SandboxId, options: AbandonedCreateOptions): Promise<boolean> {
  const { home, self, copies, signal } = options;
  const isUnborn = ({ isKilled, state, server, checkpoint }: SandboxMetadata): boolean =>
    !isKilled &&
    state === "running" &&
    server.id === self().id &&
    checkpoint === undefined &&
    copies.find(id) === undefined;
  const metadata = await SandboxHandle.read(home, id, signal);
  if (metadata === undefined || !isUnborn(metadata)) return true;
  try {
    const handle = await SandboxHandle.attachPersistent(home, id, { patienceMs: 0, signal });
    await (isUnborn(handle.metadata) ? handle.remove() : handle.release());
    return true;
  } catch (error) {
    if (isSandboxError(error, "not_found")) return true;
    if (isSandboxError(error, "in_use")) return false;
    throw error;
  }
}
