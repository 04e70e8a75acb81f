import type { GuestFiles } from "@atoll/engine";
import type { ApiEvent, ClientMessage, CommandId, SandboxId, ServerMessage } from "@atoll/protocol";
import type { Principal } from "../auth/principal.ts";
import type { Command } from "../commands/command.ts";
import type { Passed } from "../events/event-journal.ts";
import type { Requester } from "../manager/sandbox-settings.ts";
import type { WatchHub } from "../watches/watch-hub.ts";

/** A channel's way to its client. */
export interface ChannelLink {
  readonly channel: number;
  /** Aborts when the channel or the connection is closed. */
  readonly signal: AbortSignal;
  send(message: ServerMessage): void;
  /**
   * For bytes that are kept until something can be done with them; the result gives them back. Nothing: the client has
   * too many on the way.
   */
  hold(bytes: number): (() => void) | undefined;
  /** Resolves when more may be sent. */
  sendBulk(data: Buffer | string): Promise<void>;
  end(): void;
  /** Tells the client what went wrong with this channel, and ends it. */
  fail(error: unknown): void;
}

export interface Channel {
  readonly link: ChannelLink;
  onMessage?(message: Extract<ClientMessage, { type: "ack" | "stdin_end" | "signal" | "resize" }>): void;
  onStdin?(offset: number, bytes: Buffer): void;
}

/** Where channels get what they tell. */
export interface ChannelSources {
  command(sandboxId: SandboxId, commandId: CommandId, rollbacks?: number): Command;
  /** Refuses who may not change a sandbox that another holds. */
  assertNotHeld(sandboxId: SandboxId, by: Requester): void;
  files(sandboxId: SandboxId): GuestFiles;
  isHere(sandboxId: SandboxId): boolean;
  /** Brings it here if another server has it, or none. It is not idle until the result is called. */
  acquire(sandboxId: SandboxId, signal: AbortSignal): Promise<() => void>;
  /** The sandbox is here, and not idle until the result is called. */
  retain(sandboxId: SandboxId): () => void;
  /** Brings the sandbox back if it is paused. */
  wake(sandboxId: SandboxId): Promise<void>;
  watches: WatchHub;
  /** Only what the principal may see. */
  events(
    principal: Principal,
    options: { cursor?: number | undefined; sandboxId?: SandboxId | undefined; signal: AbortSignal },
  ): AsyncIterable<ApiEvent | Passed>;
}

/** Runs a channel's work; what goes wrong is told, unless the channel is closed already. */
export function inBackground(link: ChannelLink, work: () => Promise<void>): void {
  work().catch((error: unknown) => link.fail(error));
}
