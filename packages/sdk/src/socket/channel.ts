import type { ClientMessageInput, SandboxError, ServerMessage } from "@atoll/protocol";
import type { Frame } from "./frame.ts";

type WithoutChannel<Message> = Message extends { channel: number } ? Omit<Message, "channel"> : never;

/** A message of a channel to the server; the socket adds the channel's number. */
export type ChannelRequest = WithoutChannel<ClientMessageInput>;
/** A message of the server on a channel. */
export type ChannelMessage = Extract<ServerMessage, { channel?: unknown }>;

/** One stream over the shared socket. It outlives connections: on each new one it subscribes from where it was. */
export interface Channel {
  /** Returns the first message on a connection, with the position that has been reached. */
  subscribe(): ChannelRequest;
  onMessage(message: Exclude<ChannelMessage, { type: "error" }>): void;
  onFrame?(frame: Frame): void;
  /** The connection is gone; `subscribe` is called when there is a new one. */
  onDisconnect?(): void;
  /** The stream has ended: the server refused it, or stayed away for too long. */
  onError(error: SandboxError): void;
}

/**
 * Sends messages of a channel to the server. Without a connection they are dropped, and the next `subscribe` makes up
 * for them.
 */
export interface ChannelLink {
  send(request: ChannelRequest): void;
  sendFrame(frame: Omit<Frame, "channel">): void;
  close(): void;
}
