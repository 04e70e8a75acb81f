import { join } from "node:path";
import { deadlineAfter, firstToAbort, isSandboxError, SandboxError } from "@atoll/protocol";
import { openStore, type ObjectStore, type StoreConfig } from "@atoll/storage";
import type { Config, StoreSetting } from "../config/config.ts";

const storeSettings = {
  metadata: "metadataStore",
  checkpoints: "checkpointStore",
  snapshots: "snapshotStore",
} as const;
type StoreUse = keyof typeof storeSettings;
type StoreSettingName = (typeof storeSettings)[StoreUse];
const storeUses = Object.keys(storeSettings) as StoreUse[];

/** The longest time of a probe: a store that does not answer must not delay the start for longer. */
const probeTimeoutMs = 60_000;

/** The stores of the server. A store is undefined if its setting is `none`. */
export interface ServerStores extends Record<StoreUse, ObjectStore | undefined> {
  /** The stores, each once, also where several settings name it. */
  all: readonly ObjectStore[];
  /** Resolves when each store has passed its probe; rejects with the failure, naming the setting. */
  probed: Promise<void>;
  /** Closes the stores when no operation uses them; repeated calls are allowed. */
  close(): Promise<void>;
}

/**
 * Opens each store once, also where several settings name the same one. It starts the probes and does not wait for
 * them; see `probed`.
 */
export async function openServerStores(config: Pick<Config, "dataDir" | StoreSettingName>): Promise<ServerStores> {
  const opened = new Map<string, { store: ObjectStore; setting: StoreSettingName }>();
  const byUse: Record<StoreUse, ObjectStore | undefined> = {
    metadata: undefined,
    checkpoints: undefined,
    snapshots: undefined,
  };
  const closeAll = async (): Promise<void> => {
    const stores = [...opened.values()];
    opened.clear();
    await Promise.all(stores.map(({ store }) => store.close()));
  };
  try {
    for (const use of storeUses) {
      const setting = storeSettings[use];
      const described = describeStore(config[setting], config.dataDir);
      if (described === undefined) continue;
      const name = JSON.stringify(described);
      const same = opened.get(name);
      const store = same?.store ?? (await openStore(described).catch(refuse(setting)));
      if (same === undefined) opened.set(name, { store, setting });
      byUse[use] = store;
    }
  } catch (error) {
    await closeAll();
    throw error;
  }
  const stop = new AbortController();
  const signal = firstToAbort(stop.signal, deadlineAfter(probeTimeoutMs));
  const probes = [...opened.values()].map(({ store, setting }) => store.probe({ signal }).catch(refuse(setting)));
  const probed = Promise.all(probes).then(() => undefined);
  // A rejection is reported to callers that await `probed`, and there may be none yet.
  probed.catch(() => undefined);
  return {
    ...byUse,
    all: [...opened.values()].map(({ store }) => store),
    probed,
    close: async () => {
      stop.abort();
      await Promise.allSettled(probes);
      await closeAll();
    },
  };
}

function describeStore(setting: StoreSetting | undefined, dataDir: string): StoreConfig | undefined {
  if (setting === "none") return undefined;
  if (typeof setting === "object") return setting;
  return { kind: "file", path: setting ?? join(dataDir, "store") };
}

function refuse(setting: StoreSettingName): (error: unknown) => never {
  return (error) => {
    const isTyped = isSandboxError(error);
    const because = error instanceof Error ? error.message : String(error);
    throw new SandboxError(isTyped ? error.code : "unavailable", `Cannot start: ${setting}: ${because}`, {
      suggestion:
        (isTyped ? error.suggestion : undefined) ?? `Check the setting ${setting}; docs/storage.md describes it.`,
      details: { ...(isTyped ? error.details : {}), setting },
      cause: error,
    });
  };
}
