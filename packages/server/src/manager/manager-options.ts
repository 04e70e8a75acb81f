import type { EgressHandler, EngineOptions, FilesSource } from "@atoll/engine";
import type { EgressPolicy, SandboxId, SandboxLimits } from "@atoll/protocol";
import type { Logger } from "pino";
import type { AuditOptions } from "../audit/audit-log.ts";
import type { JournalOptions } from "../events/event-journal.ts";
import type { ServerPersistence } from "../persistence/server-persistence.ts";
import type { IdempotencyMark } from "../support/idempotent-calls.ts";
import type { PooledShape } from "./warm-pool.ts";

export interface SandboxManagerOptions {
  dataDir: string;
  guestPath: string;
  runscPath?: string | undefined;
  engineOptions?: Partial<Omit<EngineOptions, "dataDir" | "guestPath" | "runscPath" | "onEgress">>;
  /** Answers the connections that a sandbox wants to the outside; asked at each. Without it none is allowed. */
  onEgress?: ((sandboxId: SandboxId) => EgressHandler) | undefined;
  /** The proxy inside through which connections to the outside are asked for: started in every sandbox on this port. */
  proxyPort?: number | undefined;
  /** In the environment of every command; a sandbox's own and a command's come on top. */
  environment?: Record<string, string>;
  /** Sandboxes that are kept ready. */
  pool?: readonly PooledShape[];
  /** Ended commands of one sandbox beyond this many are forgotten, those first that ended first. */
  keptCommands?: number;
  /**
   * Output that is kept of one command, and of all ended commands of one sandbox together; of those that ended first it
   * is dropped first.
   */
  keptLogBytes?: number;
  journal?: JournalOptions;
  audit?: AuditOptions;
  /** What sandboxes that outlive this server are kept with. Absent: there are none. */
  persistence?: Pick<ServerPersistence, "home" | "self" | "wasSelf" | "notifyServer" | "openArchive">;
  /** Absent: nothing is logged. */
  log?: Logger;
}

/** Who asks for something to be made. */
export interface Caller {
  /** The id of an API key. */
  keyId: string;
  idempotencyKey?: string | undefined;
  /** Of a one-off run that can be asked for again: stored before it starts, so that the next server knows of it. */
  mark?: IdempotencyMark | undefined;
  /**
   * Called when a sandbox is really going to be made, and not given again for a request that is repeated; throws to
   * refuse.
   */
  admit?: (() => void) | undefined;
  /** What the key allows, to be kept with the sandbox: the ceiling of its egress policy at each connection. */
  egressCeiling?: EgressPolicy | undefined;
  /** Of a one-off run. */
  limits?: SandboxLimits | undefined;
  /** What the sandbox begins with. */
  files?: FilesSource | undefined;
}
