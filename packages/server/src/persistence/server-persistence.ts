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
import { createServerNotifier } from "./lease-notifications.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle, type SandboxStores } from "./sandbox-handle.ts";
import { neededCheckpoints } from "./sandbox-metadata.ts";
import { nameOfLock, ServerIdentity } from "./server-identity.ts";
import type { ServerStores } from "./server-stores.ts";
import { SharedSecret } from "./shared-secret.ts";
import { StoreSweeper } from "./store-sweeper.ts";

export interface ServerPersistenceOptions {
  config: Config;
  log: Log;
  stores: ServerStores;
  /** Returns the URL under which other servers reach this one; empty until it listens. */
  baseUrl: () => string;
}

/** What a server of this configuration needs for persistent sandboxes. */
export interface ServerPersistence extends Pick<
  PersistenceOptions,
  "sandboxStores" | "self" | "wasSelf" | "notifyServer"
> {
  /** The secret of all servers with the same metadata store; undefined if there is no such store. */
  sharedSecret: SharedSecret | undefined;
  /**
   * Opens the checkpoint archive. It is called first, after the data directory was opened. Rejects when a store has
   * failed its probe, or is not the one that the sandboxes here are in.
   */
  openArchive: (engine: Engine) => Promise<CheckpointArchive | undefined>;
  /** Starts the collector and the sweeper of the stores. */
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
    if (opened === undefined) throw new Error("The data directory is not open yet, so the server has no id");
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
  const sandboxStores: SandboxStores = {
    metadataStore: metadata,
    checkpointStore: checkpoints,
    leases:
      metadata === undefined
        ? undefined
        : new Leases({
            store: metadata,
            self,
            timing: { ttlMs: config.leaseTtlMs },
            // The process with this lock is the only one of this id that lives and has that lock.
            get lock() {
              return known().lock;
            },
            isPredecessor: (owner) => owner.id === known().identity.id,
          }),
  };
  const collector = checkpoints === undefined ? undefined : collectorOf(config, log, sandboxStores, checkpoints);
  const sweeper = new StoreSweeper({ stores: stores.all, log });
  const sharedSecret = metadata === undefined ? undefined : new SharedSecret(metadata);
  const scratchDir = join(config.dataDir, "transfers");
  return {
    sandboxStores,
    self: () => ({ ...self }),
    sharedSecret,
    notifyServer: createServerNotifier(sharedSecret),
    wasSelf: (id) => known().identity.wasId(id),
    openArchive: async (engine) => {
      const identity = await ServerIdentity.load(config.dataDir, engine.directory);
      opened = { identity, lock: await nameOfLock(engine.directory) };
      // The next steps take leases, which need a store that has passed its probe.
      await stores.probed;
      await assertSameStore({ engine, sandboxStores, identity });
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
  sandboxStores: SandboxStores,
  store: NonNullable<SandboxStores["checkpointStore"]>,
): CheckpointCollector {
  return new CheckpointCollector({
    store,
    policy: { keepLast: keepCheckpoints, keepForMs: keepCheckpointsForMs },
    statusOf: async (id, { signal }) => {
      const metadata = await SandboxHandle.read(sandboxStores, id, signal);
      return metadata && { isKilled: metadata.isKilled, needed: neededCheckpoints(metadata) };
    },
    removeKilled: (options) => removeLongKilled(sandboxStores, { ...options, log }),
    log,
  });
}
