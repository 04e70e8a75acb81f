import { join } from "node:path";
import { createLog, type SandboxManagerOptions } from "@atoll/server";
import { FileObjectStore, Leases, type LeaseParty } from "@atoll/storage";
import { CheckpointArchive } from "../../packages/server/src/persistence/checkpoint-archive.ts";
import type { SandboxStores } from "../../packages/server/src/persistence/sandbox-handle.ts";

/** A directory in which several managers store persistent sandboxes. Each has its own data directory and name. */
export interface ManagerStore {
  sandboxStores: SandboxStores;
  /** The option of `SandboxManager.open`. */
  persistence: NonNullable<SandboxManagerOptions["persistence"]>;
  close: () => Promise<void>;
}

/** Opens the store for a manager. A `name` that a manager used before means that the same manager starts again. */
export async function openManagerStore(
  directory: string,
  { name, dataDir, ttlMs }: { name: string; dataDir: string; ttlMs?: number },
): Promise<ManagerStore> {
  const store = await FileObjectStore.open(directory);
  const self: LeaseParty = { id: name, url: `test://${name}` };
  const leases = new Leases({
    store,
    self,
    ...(ttlMs === undefined ? {} : { timing: { ttlMs } }),
    isPredecessor: (owner) => owner.id === name,
  });
  const sandboxStores = { metadataStore: store, checkpointStore: store, leases };
  return {
    sandboxStores,
    persistence: {
      sandboxStores,
      self: () => self,
      wasSelf: () => false,
      notifyServer: () => undefined,
      openArchive: (engine) =>
        CheckpointArchive.open({ store, engine, scratchDir: join(dataDir, "transfers"), log: createLog("error") }),
    },
    close: async () => store.close(),
  };
}
