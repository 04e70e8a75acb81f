import { SandboxError, websocketProtocol, type ClientMessage } from "@atoll/protocol";
import type { InputOptions } from "../commands/command-input.ts";
import type { Command } from "../commands/command.ts";
import type { ChannelAudit } from "./channel-audit.ts";
import { inBackground, type Channel, type ChannelLink } from "./channel.ts";
import { encodeBinary } from "./frames.ts";
import { SendWindow } from "./send-window.ts";

const pieceBytes = 64 * 1024;

interface InputPiece {
  what: "writeStdin" | "closeStdin";
  bytes?: number;
  write: (options: InputOptions) => Promise<number>;
  /** Fields of the reply beside the offset. */
  answer?: { isEnd: true };
  /** Releases the buffered bytes. */
  release?: () => void;
}

/** Follows one command: output to the client within its window, and input from it in order. */
export class FollowChannel implements Channel {
  readonly link: ChannelLink;
  #command: Command;
  #window = new SendWindow(websocketProtocol.windowBytes);
  /** Throws unless the client may control the command. When it resolves, the command's sandbox runs. */
  #prepareControl: () => Promise<void>;
  #audit: ChannelAudit;
  #writer: string | undefined;
  /** Serializes input. */
  #input: Promise<void> = Promise.resolve();
  #waitingBytes = 0;

  constructor(
    link: ChannelLink,
    command: Command,
    { from, rollbacks, writer }: Pick<Extract<ClientMessage, { type: "follow" }>, "from" | "rollbacks" | "writer">,
    { prepareControl, audit }: { prepareControl: () => Promise<void>; audit: ChannelAudit },
  ) {
    this.link = link;
    this.#command = command;
    this.#writer = writer;
    this.#prepareControl = prepareControl;
    this.#audit = audit;
    link.signal.addEventListener("abort", () => void this.#input.then(() => audit.end()), { once: true });
    inBackground(link, () => this.#follow(from, rollbacks));
  }

  onMessage(message: Extract<ClientMessage, { type: "ack" | "stdin_end" | "signal" | "resize" }>): void {
    switch (message.type) {
      case "ack":
        this.#window.acknowledge(message.at);
        return;
      case "stdin_end":
        this.#inOrder({
          what: "closeStdin",
          write: (options) => this.#command.closeStdin({ ...options, offset: message.offset }),
          answer: { isEnd: true },
        });
        return;
      case "signal":
        inBackground(this.link, () =>
          this.#audit.each("signalCommand", { signal: message.signal }, () =>
            this.#control(() => this.#command.signal(message.signal)),
          ),
        );
        return;
      case "resize":
        inBackground(this.link, () =>
          this.#control(() => this.#command.resize({ rows: message.rows, cols: message.cols })),
        );
        return;
    }
  }

  onStdin(offset: number, bytes: Buffer): void {
    // A client that sends more than the window would make the server buffer it.
    const isTooMuch = this.#waitingBytes + bytes.byteLength > websocketProtocol.windowBytes;
    const release = isTooMuch ? undefined : this.link.buffer(bytes.byteLength);
    if (release === undefined) {
      this.link.fail(
        new SandboxError("limit_reached", "Cannot accept more input: earlier input is not accepted yet", {
          suggestion:
            `Keep at most ${websocketProtocol.windowBytes} bytes on the way for a command, ` +
            `and ${websocketProtocol.connectionBytes} over a connection.`,
        }),
      );
      return;
    }
    this.#inOrder({
      what: "writeStdin",
      bytes: bytes.byteLength,
      write: (options) => this.#command.writeStdin(bytes, { ...options, offset }),
      release,
    });
  }

  #inOrder({ what, bytes = 0, write, answer, release }: InputPiece): void {
    this.#waitingBytes += bytes;
    this.#input = this.#input.then(async () => {
      try {
        this.link.signal.throwIfAborted();
        const offset = await this.#audit.gather(what, bytes, async () => {
          await this.#prepareControl();
          return write({ writer: this.#writer, signal: this.link.signal });
        });
        this.link.send({ type: "stdin_accepted", channel: this.link.channel, offset, ...answer });
      } catch (error) {
        this.link.fail(error);
      } finally {
        this.#waitingBytes -= bytes;
        release?.();
      }
    });
  }

  async #control(action: () => Promise<void>): Promise<void> {
    await this.#prepareControl();
    await action();
  }

  /**
   * Reports input that was accepted over other connections, because this client's input continues after it. Input over
   * this channel is acknowledged where it is written.
   */
  async #reportInput(): Promise<void> {
    const { channel, signal } = this.link;
    for (let reported = this.#command.knownOffset(this.#writer); ;) {
      await this.#command.inputAccepted(signal);
      const offset = this.#command.knownOffset(this.#writer);
      if (this.#waitingBytes > 0 || offset === undefined || offset === reported) continue;
      reported = offset;
      this.link.send({ type: "stdin_accepted", channel, offset });
    }
  }

  async #follow(from: number, rollbacks: number | undefined): Promise<void> {
    const { channel, signal } = this.link;
    this.#command.assertNotRolledBack(rollbacks);
    const writerBytes = this.#writer === undefined ? undefined : await this.#command.nextOffset(this.#writer);
    const accepted = writerBytes === undefined ? {} : { writerBytes };
    this.link.send({ type: "following", channel, command: this.#command.info(), ...accepted });
    inBackground(this.link, () => this.#reportInput());
    for await (const piece of this.#command.follow({ from, signal })) {
      if (piece.type === "dropped") {
        this.link.send({ type: "dropped", channel, at: piece.at, bytes: piece.bytes });
        continue;
      }
      for (let sent = 0; sent < piece.data.byteLength;) {
        const room = Math.min(pieceBytes, await this.#window.room(signal));
        const bytes = piece.data.subarray(sent, sent + room);
        const at = piece.at + sent;
        this.#window.sent(at + bytes.byteLength, bytes.byteLength);
        const frame = { kind: piece.stream, channel, at, offset: piece.offset + sent, bytes };
        await this.link.sendBulk(encodeBinary(frame));
        sent += bytes.byteLength;
      }
    }
    this.link.send({ type: "ended", channel, command: await this.#command.waitEnd(signal) });
    this.link.end();
  }
}
