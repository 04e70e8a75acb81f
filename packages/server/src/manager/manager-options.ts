import type { EgressHandler, EngineOptions, FilesSource } from "@atoll/engine";
import type { AlertSettings, AuditOptions } from "@atoll/guard";
import type { AuditLevel, CreateSandbox, EgressPolicy, SandboxId, SecurityProfile } from "@atoll/protocol";
import type { Logger } from "pino";
import type { JournalOptions } from "../events/event-journal.ts";
import type { MonitorOptions } from "../monitor/sandbox-monitor.ts";
import type { ServerPersistence } from "../persistence/server-persistence.ts";
import type { IdempotencyMark } from "../support/idempotent-calls.ts";
import type { PooledShape } from "./warm-pool.ts";

export interface SandboxManagerOptions {
  dataDir: string;
  guestPath: string;
  runscPath?: string | undefined;
  engineOptions?: Partial<Omit<EngineOptions, "dataDir" | "guestPath" | "runscPath" | "onEgress">>;
  /** Handles each connection that a sandbox wants to make to the outside. Without it, none is allowed. */
  onEgress?: ((sandboxId: SandboxId) => EgressHandler) | undefined;
  /** The port of the proxy inside each sandbox, through which programs connect to the outside. */
  proxyPort?: number | undefined;
  /** The environment of every command; the variables of a sandbox and of a command are added to it and win. */
  environment?: Record<string, string>;
  /** Sandboxes that are kept ready. */
  pool?: readonly PooledShape[];
  /** The number of ended commands of one sandbox that are kept; those that ended first are forgotten first. */
  keptCommands?: number;
  /**
   * The limit for the output of one command, and for that of all ended commands of one sandbox together; the output of
   * those that ended first is dropped first.
   */
  keptLogBytes?: number;
  journal?: JournalOptions;
  /** How often a sandbox may reach its limits in ten minutes before it is isolated; 0 means any number of times. */
  isolateAfterHits?: number;
  /** How much is recorded of sandboxes whose profile does not say it. */
  auditLevel?: AuditLevel;
  audit?: Omit<AuditOptions, "key">;
  /** The stores of persistent sandboxes. Without them there are no persistent sandboxes. */
  persistence?: Pick<ServerPersistence, "sandboxStores" | "self" | "wasSelf" | "notifyServer" | "openArchive">;
  /** The settings of the monitor. */
  monitor?: MonitorOptions;
  /** The receiver of alerts. Without it there are none. */
  alerts?: AlertSettings | undefined;
  /** Without it nothing is logged. */
  log?: Logger;
}

/** The caller that creates a sandbox. */
export interface Caller {
  /** The id of an API key. */
  keyId: string;
  idempotencyKey?: string | undefined;
  /**
   * The mark of a one-off run with an idempotency key. It is stored before the run starts, so that the next server
   * knows of it.
   */
  mark?: IdempotencyMark | undefined;
  /** Called when a sandbox is really going to be created, but not for a repeated request; it throws to refuse. */
  admit?: (() => void) | undefined;
  /** The egress policy of the key, to be stored with the sandbox: the ceiling of its own policy at each connection. */
  egressCeiling?: EgressPolicy | undefined;
  /** The profile, which is stored with the sandbox: a profile that is changed later applies to new sandboxes. */
  profile?: SecurityProfile | undefined;
  /** What a one-off run is given. */
  terms?: Pick<CreateSandbox, "driver" | "limits" | "egress"> | undefined;
  /** The files that the sandbox begins with. */
  files?: FilesSource | undefined;
}
