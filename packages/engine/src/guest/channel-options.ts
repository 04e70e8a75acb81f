import type { SandboxError } from "@atoll/protocol";
import type { EgressHandler } from "./egress-relay.ts";
import type { NetworkCount } from "./guest-connection.ts";
import type { TrafficListener } from "./guest-line.ts";
import type { Expectation, GuestWatchOptions } from "./guest-watch.ts";
import type { FifoPaths } from "./transport.ts";

export interface ChannelOptions {
  paths: FifoPaths;
  /** Whether this host made the FIFOs; otherwise an earlier host may have left half a frame in them. */
  isFirstHost: boolean;
  signal: AbortSignal;
  /** Without a handler every connection to the outside is refused. */
  onEgress?: EgressHandler | undefined;
  traffic?: TrafficListener;
  /** Counts what connections carry. */
  network?: NetworkCount | undefined;
  /** Finds out why the sandbox is gone; callers get its error only after that. */
  explainEnd?: () => Promise<SandboxError>;
  /** Without a watch, a request waits for as long as the guest takes. */
  watch?: GuestWatchOptions | undefined;
}

export interface AttachOptions {
  /** The guest remembers the end until `release`: for a caller that stores it first. */
  keep?: boolean;
  /** Kills the process when it aborts. */
  signal?: AbortSignal;
  /** An id from `reserveStreamId`: the caller has stored it, and a later server finds the process by it. */
  streamId?: number;
  /** Called, again and again, while the process should have ended by then and its guest is silent. */
  overdue?: Expectation | undefined;
  /** Resolves to whether the sandbox ran out of memory since this moment. */
  ranOutOfMemory?: () => Promise<boolean>;
}
