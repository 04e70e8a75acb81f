import type { EgressHandler, Engine, Sandbox } from "@atoll/engine";
import type { SandboxId, ServerRef } from "@atoll/protocol";
import type { Logger } from "pino";
import type { NewEvent } from "../events/event-journal.ts";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import type { SandboxRegistry } from "../manager/sandbox-registry.ts";
import type { SandboxSettings } from "../manager/sandbox-settings.ts";
import type { CheckpointArchive } from "./checkpoint-archive.ts";
import type { NotifyServer } from "./lease-notifications.ts";
import type { SandboxStores } from "./sandbox-handle.ts";

/** What persistent sandboxes need: the server's stores, and the manager of all its sandboxes. */
export interface PersistenceOptions {
  sandboxStores: SandboxStores;
  /** The stored checkpoints; absent if there is no checkpoint store. */
  archive: CheckpointArchive | undefined;
  /** This server, as others know it. */
  self: () => ServerRef;
  notifyServer: NotifyServer;
  /**
   * Reports whether this id belongs to a server whose data directory this one was: it is a copy of it, or was moved or
   * restored since.
   */
  wasSelf: (id: string) => boolean;
  engine: Engine;
  registry: SandboxRegistry;
  /** Adds the sandbox to the registry. */
  manage: (sandbox: Sandbox, facts: SandboxSettings, options: { hasEarlierCommands: boolean }) => ManagedSandbox;
  /** Removes the sandbox from the registry. */
  forget: (managed: ManagedSandbox) => void;
  /** Resumes a paused sandbox inside its queue. */
  resume: (id: SandboxId) => Promise<unknown>;
  onEgress: ((sandboxId: SandboxId) => EgressHandler) | undefined;
  emit: (event: NewEvent) => void;
  log: Logger;
}

/** The options of a server without persistent sandboxes. */
export const noPersistence: Pick<PersistenceOptions, "sandboxStores" | "self" | "wasSelf" | "notifyServer"> = {
  sandboxStores: { metadataStore: undefined, checkpointStore: undefined, leases: undefined },
  self: () => ({ id: "none", url: "" }),
  wasSelf: () => false,
  notifyServer: () => undefined,
};
