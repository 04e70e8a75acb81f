import type { GuestFiles } from "@atoll/engine";
import type { ApiEvent, ClientMessage, CommandId, SandboxId, ServerMessage } from "@atoll/protocol";
import type { Principal } from "../auth/principal.ts";
import type { Command } from "../commands/command.ts";
import type { Passed } from "../events/event-journal.ts";
import type { Requester } from "../manager/sandbox-settings.ts";
import type { WatchHub } from "../watches/watch-hub.ts";

/** The connection of a channel to its client. */
export interface ChannelLink {
  readonly channel: number;
  /** Aborts when the channel or the connection is closed. */
  readonly signal: AbortSignal;
  send(message: ServerMessage): void;
  /**
   * Reserves memory for bytes that have to be buffered; the returned function releases it. Returns undefined if the
   * client has too many bytes buffered.
   */
  buffer(bytes: number): (() => void) | undefined;
  /** Sends data and resolves when more may be sent. */
  sendBulk(data: Buffer | string): Promise<void>;
  end(): void;
  /** Reports an error of this channel to the client, and ends the channel. */
  fail(error: unknown): void;
}

export interface Channel {
  readonly link: ChannelLink;
  onMessage?(message: Extract<ClientMessage, { type: "ack" | "stdin_end" | "signal" | "resize" }>): void;
  onStdin?(offset: number, bytes: Buffer): void;
}

/** The data sources of channels. */
export interface ChannelSources {
  command(sandboxId: SandboxId, commandId: CommandId, rollbacks?: number): Command;
  /** Throws if another client holds the sandbox. */
  assertNotHeld(sandboxId: SandboxId, by: Requester): void;
  files(sandboxId: SandboxId): GuestFiles;
  isHere(sandboxId: SandboxId): boolean;
  /** Acquires a sandbox that is not here. It is not idle until the returned function is called. */
  acquire(sandboxId: SandboxId, signal: AbortSignal): Promise<() => void>;
  /** Retains a sandbox that is here: it is not idle until the returned function is called. */
  retain(sandboxId: SandboxId): () => void;
  /** Resumes the sandbox if it is paused. */
  wake(sandboxId: SandboxId): Promise<void>;
  watches: WatchHub;
  /** Returns the events that the principal may see. */
  events(
    principal: Principal,
    options: { cursor?: number | undefined; sandboxId?: SandboxId | undefined; signal: AbortSignal },
  ): AsyncIterable<ApiEvent | Passed>;
}

/** Runs the work of a channel; an error is sent to the client unless the channel is closed. */
export function inBackground(link: ChannelLink, work: () => Promise<void>): void {
  work().catch((error: unknown) => link.fail(error));
}
