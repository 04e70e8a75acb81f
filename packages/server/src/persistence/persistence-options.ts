import type { EgressHandler, Engine, Sandbox } from "@atoll/engine";
import type { SandboxId, ServerRef } from "@atoll/protocol";
import type { Logger } from "pino";
import type { NewEvent } from "../events/event-journal.ts";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import type { SandboxRegistry } from "../manager/sandbox-registry.ts";
import type { SandboxSettings } from "../manager/sandbox-settings.ts";
import type { CheckpointArchive } from "./checkpoint-archive.ts";
import type { SendNudge } from "./lease-notifications.ts";
import type { HandleHome } from "./sandbox-handle.ts";

/** What persistent sandboxes are kept with: the server's stores, and the manager of all its sandboxes. */
export interface PersistenceOptions {
  home: HandleHome;
  /** Absent where `home` has no checkpoint store. */
  archive: CheckpointArchive | undefined;
  /** This server, as others know it. */
  self: () => ServerRef;
  notifyServer: SendNudge;
  /**
   * Whether what is here was that server's before: this data directory is a copy of its, or was moved or restored
   * since.
   */
  wasSelf: (id: string) => boolean;
  engine: Engine;
  registry: SandboxRegistry;
  /** Puts it on the registry. */
  manage: (sandbox: Sandbox, facts: SandboxSettings, options: { hasEarlierCommands: boolean }) => ManagedSandbox;
  /** Takes it off the registry. */
  forget: (managed: ManagedSandbox) => void;
  /** Brings a paused one back to life, with all that belongs to that. Whoever asks for it has the sandbox's turn. */
  resume: (id: SandboxId) => Promise<unknown>;
  onEgress: ((sandboxId: SandboxId) => EgressHandler) | undefined;
  emit: (event: NewEvent) => void;
  log: Logger;
}

/** Of a server that keeps none. */
export const noPersistence: Pick<PersistenceOptions, "home" | "self" | "wasSelf" | "notifyServer"> = {
  home: { metadataStore: undefined, checkpointStore: undefined, leases: undefined },
  self: () => ({ id: "none", url: "" }),
  wasSelf: () => false,
  notifyServer: () => undefined,
};
