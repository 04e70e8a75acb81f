import type { EgressHandler, Engine, Sandbox } from "@atoll/engine";
import type { SandboxId, ServerRef } from "@atoll/protocol";
import type { Logger } from "pino";
import type { NewEvent } from "../events/event-journal.ts";
import type { ManagedSandbox } from "../manager/managed-sandbox.ts";
import type { SandboxFacts } from "../manager/sandbox-facts.ts";
import type { SandboxRoster } from "../manager/sandbox-roster.ts";
import type { CheckpointArchive } from "./checkpoint-archive.ts";
import type { SendNudge } from "./nudges.ts";
import type { HandleHome } from "./sandbox-handle.ts";

/** What persistent sandboxes are kept with: the server's stores, and the manager of all its sandboxes. */
export interface PersistenceOptions {
  home: HandleHome;
  /** Absent where `home` has no checkpoint store. */
  archive: CheckpointArchive | undefined;
  /** This server, as others know it. */
  self: () => ServerRef;
  sendNudge: SendNudge;
  /** Whether what is here was that server's before: this data directory is a copy of its, or was moved or restored since. */
  wasSelf: (id: string) => boolean;
  engine: Engine;
  roster: SandboxRoster;
  /** Puts it on the roster. */
  manage: (sandbox: Sandbox, facts: SandboxFacts, options: { hasPast: boolean }) => ManagedSandbox;
  /** Takes it off the roster. */
  forget: (managed: ManagedSandbox) => void;
  /** Brings a paused one back to life, with all that belongs to that. Whoever asks for it has the sandbox's turn. */
  resume: (id: SandboxId) => Promise<unknown>;
  onEgress: ((sandboxId: SandboxId) => EgressHandler) | undefined;
  tell: (event: NewEvent) => void;
  log: Logger;
}

/** Of a server that keeps none. */
export const noPersistence: Pick<PersistenceOptions, "home" | "self" | "wasSelf" | "sendNudge"> = {
  home: { metadataStore: undefined, checkpointStore: undefined, leases: undefined },
  self: () => ({ id: "none", url: "" }),
  wasSelf: () => false,
  sendNudge: () => undefined,
};
