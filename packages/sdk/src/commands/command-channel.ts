import {
  websocketProtocol,
  type CommandId,
  type CommandInfo,
  type SandboxError,
  type SandboxId,
} from "@atoll/protocol";
import type { Channel, ChannelLink, ChannelMessage, ChannelRequest } from "../socket/channel.ts";
import { EventQueue } from "../socket/event-queue.ts";
import type { Frame } from "../socket/frame.ts";
import type { Socket } from "../socket/socket.ts";
import { OutputCursor } from "./output-cursor.ts";
import type { OutputEvent } from "./output-event.ts";
import type { StdinSender } from "./stdin-sender.ts";

/** Bytes that were read are acknowledged in steps of this size, well below what the server lets wait. */
const ackStepBytes = websocketProtocol.windowBytes / 4;

/** Follows one command over the shared socket: its output for one reader, and its input if there is any. */
export class CommandChannel implements Channel {
  readonly #sandboxId: SandboxId;
  readonly #commandId: CommandId;
  readonly #rollbacks: number;
  readonly #socket: Socket;
  #stdin: StdinSender | undefined;
  readonly #cursor: OutputCursor;
  readonly #queue = new EventQueue<OutputEvent>();
  #link: ChannelLink;
  #ackedAt: number;

  /** `from` is a position, or the cursor of a reader that continues here. */
  constructor(socket: Socket, command: CommandInfo, from: number | OutputCursor, stdin?: StdinSender) {
    this.#socket = socket;
    this.#sandboxId = command.sandboxId;
    this.#commandId = command.id;
    this.#rollbacks = command.rollbacks ?? 0;
    this.#stdin = stdin;
    this.#cursor = typeof from === "number" ? new OutputCursor(from) : from;
    this.#ackedAt = this.#cursor.at;
    this.#link = socket.open(this);
  }

  /** Resolves with `undefined` after the end. */
  async next(signal?: AbortSignal): Promise<OutputEvent | undefined> {
    const event = await this.#queue.next(signal);
    if (event !== undefined && event.type !== "ended") this.#acknowledge(event);
    return event;
  }

  /** How many bytes have arrived, in their common order. */
  get at(): number {
    return this.#cursor.at;
  }

  /** Ends the channel: its reader gets the error, or the end. */
  close(error?: SandboxError): void {
    this.#link.close();
    this.#stdin?.detach(this.#link);
    this.#queue.end(error);
  }

  subscribe(): ChannelRequest {
    const writer = this.#stdin === undefined ? {} : { writer: this.#stdin.writer };
    const command = { sandboxId: this.#sandboxId, commandId: this.#commandId, rollbacks: this.#rollbacks };
    return { type: "follow", ...command, from: this.#cursor.at, ...writer };
  }

  onMessage(message: Exclude<ChannelMessage, { type: "error" }>): void {
    if (message.type === "following") this.#stdin?.attach(this.#link, message.writerBytes);
    else if (message.type === "stdin_accepted") this.#stdin?.accepted(message.offset, message.isEnd);
    else if (message.type === "dropped") this.#push(() => this.#cursor.takeDropped(message.at, message.bytes));
    else if (message.type === "ended") {
      this.#stdin?.ended();
      this.#push(() => this.#cursor.takeEnd(message.command));
      this.#queue.end();
      this.#link.close();
    }
  }

  onFrame({ kind, at, offset, bytes }: Frame): void {
    if (kind !== "stdin") this.#push(() => this.#cursor.take(kind, at, offset, bytes));
  }

  onDisconnect(): void {
    this.#stdin?.detach(this.#link);
  }

  onError(error: SandboxError): void {
    const stdin = this.#stdin;
    if (stdin?.isPending !== true) {
      this.#queue.end(error);
      return;
    }
    // The server may have refused the input only, say of a command that reads no more: the output goes on.
    this.#stdin = undefined;
    stdin.fail(error);
    this.#link = this.#socket.open(this);
  }

  #push(take: () => OutputEvent | undefined): void {
    try {
      const event = take();
      if (event !== undefined) this.#queue.push(event);
    } catch (error) {
      this.#queue.end(error as Error);
      this.#link.close();
    }
  }

  #acknowledge(event: Exclude<OutputEvent, { type: "ended" }>): void {
    const readAt = event.at + (event.type === "dropped" ? event.bytes : event.data.length);
    if (readAt - this.#ackedAt < ackStepBytes) return;
    this.#ackedAt = readAt;
    this.#link.send({ type: "ack", at: readAt });
  }
}
