import type { Driver, LaunchSource } from "../drivers/driver.ts";
import type { EgressHandler } from "../guest/egress-relay.ts";
import type { IdleSandbox } from "../idle/idle-sandbox.ts";
import type { SandboxLayout } from "../store/layout.ts";
import type { Template } from "../templates/template.ts";
import type { EventLog } from "./event-log.ts";
import type { RecordKeeper } from "./record-keeper.ts";

export interface SandboxLifeOptions {
  keeper: RecordKeeper;
  layout: SandboxLayout;
  driver: Driver;
  template: Template;
  events: EventLog;
  /** How long the guest may take to answer the first greeting. */
  startTimeoutMs: number;
  /** How long the guest may leave a question unanswered before it counts as silent. */
  guestTimeoutMs: number;
  idle: IdleSandbox;
  onEgress?: EgressHandler | undefined;
  /** Called after each step of a release. */
  onRelease: (step: string) => Promise<void>;
  /** Called once, when the sandbox is gone for good; removes what no other sandbox shares. */
  onGone: () => Promise<void>;
}

export interface StartOptions {
  signal: AbortSignal;
  /** Without a source the sandbox begins with its template alone. */
  from?: LaunchSource;
  base?: number;
  /** The size of the layers in `from`. */
  layerBytes?: number;
  /** The port of the proxy inside, which listens before the sandbox counts as running. */
  proxyPort?: number | undefined;
}

export interface TakeOverOptions {
  /** How long to wait for the guest. */
  withinMs: number;
  /** Called when it has answered, however late. */
  onReached: () => Promise<void>;
}

export interface MoveOptions {
  signal: AbortSignal;
  /**
   * No process runs before this resolves; what was prepared is removed when it rejects. The guest's time to answer
   * begins then.
   */
  mayStart?: Promise<void>;
  /** The memory is that of the last container at its end: readers and writers of a stream continue. */
  keepsStreams: boolean;
  /** Called when the container has been started, before its guest has answered. */
  onLaunched: () => void;
}
