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
  /** Told of each step of a release. */
  onRelease: (step: string) => Promise<void>;
  /** Called once, when the sandbox is gone for good; removes what it shared with nobody. */
  onGone: () => Promise<void>;
}

export interface StartOptions {
  signal: AbortSignal;
  /** Without it the sandbox begins with its template alone. */
  from?: LaunchSource;
  base?: number;
  /** Of the layers in `from`. */
  frozenBytes?: number;
  /** Where programs inside find the way out; it is there when the sandbox runs. */
  proxyPort?: number | undefined;
}

export interface TakeOverOptions {
  /** How long the guest is waited for. */
  withinMs: number;
  /** Called when it has answered, also later. */
  onReached: () => Promise<void>;
}

export interface MoveOptions {
  signal: AbortSignal;
  /**
   * Nothing runs before this resolves; what is made ready meanwhile goes when it rejects. The guest's time to answer
   * begins with it.
   */
  mayStart?: Promise<void>;
  /** The memory is that of the last container at its end: whoever reads or writes a stream goes on. */
  keepsStreams: boolean;
  /** Called when the container has been started, before its guest has answered. */
  onLaunched: () => void;
}
