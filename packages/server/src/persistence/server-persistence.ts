import { join } from "node:path";
import type { Engine } from "@atoll/engine";
import type { SandboxId, ServerRef } from "@atoll/protocol";
import { Leases } from "@atoll/storage";
import type { Config } from "../config/config.ts";
import type { Log } from "../telemetry/log.ts";
import { CheckpointArchive } from "./checkpoint-archive.ts";
import { CheckpointCollector } from "./checkpoint-collector.ts";
import { removeLongKilled } from "./killed-sandboxes.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle, type HandleHome } from "./sandbox-handle.ts";
import { neededCheckpoints } from "./sandbox-metadata.ts";
import { ServerIdentity, thisBoot } from "./server-identity.ts";
import type { ServerStores } from "./server-stores.ts";
import { assertSettledStore } from "./settled-store.ts";

export interface ServerPersistenceOptions {
  config: Config;
  log: Log;
  stores: ServerStores;
  /** How others reach this server; empty until it listens. */
  baseUrl: () => string;
}

/** What a server of this configuration keeps persistent sandboxes with. */
export interface ServerPersistence extends Pick<PersistenceOptions, "home" | "self"> {
  /** Rejects when one of the stores was seen not to do what it must, or is not the one that the sandboxes here are in. */
  openArchive: (engine: Engine) => Promise<CheckpointArchive | undefined>;
  /** What is stored is collected from now on. */
  start: () => void;
  close: () => Promise<void>;
}

export async function openServerPersistence(options: ServerPersistenceOptions): Promise<ServerPersistence> {
  const { config, log, stores, baseUrl } = options;
  const { metadata, checkpoints } = stores;
  const identity = await ServerIdentity.load(config.dataDir);
  const { id } = identity;
  const boot = await thisBoot();
  const home: HandleHome = {
    metadataStore: metadata,
    checkpointStore: checkpoints,
    leases:
      metadata === undefined
        ? undefined
        : new Leases({
            store: metadata,
            self: {
              id,
              get url() {
                return baseUrl();
              },
            },
            timing: { ttlMs: config.leaseTtlMs },
            // Whoever has opened the data directory is the only one of this name that lives under this kernel.
            ...(boot === undefined ? {} : { boot, isPredecessor: (owner: ServerRef) => owner.id === id }),
          }),
  };
  const collector = checkpoints === undefined ? undefined : collectorOf(config, log, home, checkpoints);
  const scratchDir = join(config.dataDir, "transfers");
  return {
    home,
    self: (): ServerRef => ({ id, url: baseUrl() }),
    openArchive: async (engine) => {
      // What comes next takes leases, which are worth nothing in a store that does not keep its word.
      await stores.proven;
      await assertSettledStore({ engine, home, identity });
      if (checkpoints === undefined) return undefined;
      const onPublished = (sandboxId: SandboxId): void => collector?.published(sandboxId);
      return CheckpointArchive.open({ store: checkpoints, engine, scratchDir, log, onPublished });
    },
    start: () => collector?.start(),
    close: async () => collector?.close(),
  };
}

function collectorOf(
  { keepCheckpoints, keepCheckpointsForMs }: Config,
  log: Log,
  home: HandleHome,
  store: NonNullable<HandleHome["checkpointStore"]>,
): CheckpointCollector {
  return new CheckpointCollector({
    store,
    policy: { keepLast: keepCheckpoints, keepForMs: keepCheckpointsForMs },
    standingOf: async (id, { signal }) => {
      const metadata = await SandboxHandle.read(home, id, signal);
      return metadata && { isKilled: metadata.isKilled, needed: neededCheckpoints(metadata) };
    },
    removeKilled: (options) => removeLongKilled(home, { ...options, log }),
    log,
  });
}
