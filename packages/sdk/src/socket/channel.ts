import type { ClientMessageInput, SandboxError, ServerMessage } from "@atoll/protocol";
import type { Frame } from "./frame.ts";

type WithoutChannel<Message> = Message extends { channel: number } ? Omit<Message, "channel"> : never;

/** What a channel may say to the server; the socket puts the number on it. */
export type ChannelRequest = WithoutChannel<ClientMessageInput>;
/** What the server says on a channel. */
export type ChannelMessage = Extract<ServerMessage, { channel?: unknown }>;

/** One stream over the shared socket. It outlives connections: on each new one it says where it carries on. */
export interface Channel {
  /** The first message on a connection, with the position that has been reached. */
  subscribe(): ChannelRequest;
  onMessage(message: Exclude<ChannelMessage, { type: "error" }>): void;
  onFrame?(frame: Frame): void;
  /** The connection is gone; `subscribe` follows when there is a new one. */
  onDisconnect?(): void;
  /** No more will come: the server refused, or it stayed away for too long. */
  onError(error: SandboxError): void;
}

/** A channel's way to the server. What is sent while there is no connection is dropped: `subscribe` makes up for it. */
export interface ChannelLink {
  send(request: ChannelRequest): void;
  sendFrame(frame: Omit<Frame, "channel">): void;
  close(): void;
}
