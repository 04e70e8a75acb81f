import { join } from "node:path";
import type { Engine } from "@atoll/engine";
import type { SandboxId, ServerRef } from "@atoll/protocol";
import { Leases } from "@atoll/storage";
import type { Config } from "../config/config.ts";
import type { Log } from "../telemetry/log.ts";
import { assertSameStore } from "./assert-same-store.ts";
import { CheckpointArchive } from "./checkpoint-archive.ts";
import { CheckpointCollector } from "./checkpoint-collector.ts";
import { removeLongKilled } from "./killed-sandboxes.ts";
import { nudgeSender } from "./lease-notifications.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle, type HandleHome } from "./sandbox-handle.ts";
import { neededCheckpoints } from "./sandbox-metadata.ts";
import { nameOfLock, ServerIdentity } from "./server-identity.ts";
import type { ServerStores } from "./server-stores.ts";
import { SharedSecret } from "./shared-secret.ts";
import { StoreSweeper } from "./store-sweeper.ts";

export interface ServerPersistenceOptions {
  config: Config;
  log: Log;
  stores: ServerStores;
  /** How others reach this server; empty until it listens. */
  baseUrl: () => string;
}

/** What a server of this configuration keeps persistent sandboxes with. */
export interface ServerPersistence extends Pick<PersistenceOptions, "home" | "self" | "wasSelf" | "notifyServer"> {
  /** Undefined: there is no store that other servers could share. */
  sharedSecret: SharedSecret | undefined;
  /**
   * To be called first, by whoever has opened the data directory. Rejects when one of the stores was seen not to do
   * what it must, or is not the one that the sandboxes here are in.
   */
  openArchive: (engine: Engine) => Promise<CheckpointArchive | undefined>;
  /** What is stored is collected, and all stores are swept, from now on. */
  start: () => void;
  close: () => Promise<void>;
}

interface Opened {
  identity: ServerIdentity;
  lock: string;
}

export function openServerPersistence(options: ServerPersistenceOptions): ServerPersistence {
  const { config, log, stores, baseUrl } = options;
  const { metadata, checkpoints } = stores;
  let opened: Opened | undefined;
  const known = (): Opened => {
    if (opened === undefined) throw new Error("The data directory is not open yet: nobody knows whose it is");
    return opened;
  };
  const self: ServerRef = {
    get id() {
      return known().identity.id;
    },
    get url() {
      return baseUrl();
    },
  };
  const home: HandleHome = {
    metadataStore: metadata,
    checkpointStore: checkpoints,
    leases:
      metadata === undefined
        ? undefined
        : new Leases({
            store: metadata,
            self,
            timing: { ttlMs: config.leaseTtlMs },
            // Whoever has the lock is the only one of this name that lives and has that lock.
            get lock() {
              return known().lock;
            },
            isPredecessor: (owner) => owner.id === known().identity.id,
          }),
  };
  const collector = checkpoints === undefined ? undefined : collectorOf(config, log, home, checkpoints);
  const sweeper = new StoreSweeper({ stores: stores.all, log });
  const sharedSecret = metadata === undefined ? undefined : new SharedSecret(metadata);
  const scratchDir = join(config.dataDir, "transfers");
  return {
    home,
    self: () => ({ ...self }),
    sharedSecret,
    notifyServer: nudgeSender(sharedSecret),
    wasSelf: (id) => known().identity.wasNamed(id),
    openArchive: async (engine) => {
      const identity = await ServerIdentity.load(config.dataDir, engine.directory);
      opened = { identity, lock: await nameOfLock(engine.directory) };
      // What comes next takes leases, which are worth nothing in a store that does not keep its word.
      await stores.proven;
      await assertSameStore({ engine, home, identity });
      if (checkpoints === undefined) return undefined;
      const onPublished = (sandboxId: SandboxId): void => collector?.published(sandboxId);
      return CheckpointArchive.open({ store: checkpoints, engine, scratchDir, log, onPublished });
    },
    start: () => {
      collector?.start();
      sweeper.start();
    },
    close: async () => {
      await Promise.all([collector?.close(), sweeper.close()]);
    },
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
