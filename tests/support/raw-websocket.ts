import { once } from "node:events";
import { binaryHeader, ServerMessage, websocketProtocol, type ClientMessageInput } from "@atoll/protocol";
import { WebSocket } from "ws";

export interface OutputFrame {
  kind: number;
  channel: number;
  at: number;
  offset: number;
  bytes: Buffer;
}

/**
 * A WebSocket without the SDK's windows and reconnection. Messages and frames wait in order until a test reads them.
 */
export class RawWebSocket {
  readonly socket: WebSocket;
  #received: (ServerMessage | OutputFrame)[] = [];
  #wake: () => void = () => undefined;
  closedWith: number | undefined;

  private constructor(url: string, headers: Record<string, string>) {
    this.socket = new WebSocket(url.replace(/^http/, "ws") + websocketProtocol.path, { headers });
    this.socket.on("message", (data: Buffer, isBinary) => {
      this.#received.push(isBinary ? decode(data) : ServerMessage.parse(JSON.parse(data.toString())));
      this.#wake();
    });
    this.socket.on("close", (code) => {
      this.closedWith = code;
      this.#wake();
    });
    this.socket.on("error", () => undefined);
  }

  static async open(url: string, headers: Record<string, string> = {}): Promise<RawWebSocket> {
    const opened = new RawWebSocket(url, headers);
    await once(opened.socket, "open");
    return opened;
  }

  static async greeted(url: string, hello: { key?: string; sandboxToken?: string }): Promise<RawWebSocket> {
    const opened = await RawWebSocket.open(url);
    opened.send({ type: "hello", version: 1, ...hello });
    await opened.until("welcome");
    return opened;
  }

  send(message: ClientMessageInput): void {
    this.socket.send(JSON.stringify(message));
  }

  sendStdin(channel: number, offset: number, text: string): void {
    const header = Buffer.alloc(binaryHeader.bytes);
    header.writeUInt8(binaryHeader.kinds.stdin, 0);
    header.writeUInt32LE(channel, 1);
    header.writeBigUInt64LE(BigInt(offset), 13);
    this.socket.send(Buffer.concat([header, Buffer.from(text)]));
  }

  /** Returns the next message or frame; undefined after the end of the connection. */
  async next(): Promise<ServerMessage | OutputFrame | undefined> {
    for (;;) {
      const first = this.#received.shift();
      if (first !== undefined) return first;
      if (this.closedWith !== undefined) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Returns the first message of this type, on this channel if one is given, and drops everything before it. */
  async until<T extends ServerMessage["type"]>(
    type: T,
    channel?: number,
  ): Promise<Extract<ServerMessage, { type: T }>> {
    for (;;) {
      const received = await this.next();
      if (received === undefined) throw new Error(`The connection ended with ${this.closedWith} before ${type}`);
      if (!("type" in received) || received.type !== type) continue;
      if (channel !== undefined && (!("channel" in received) || received.channel !== channel)) continue;
      return received as Extract<ServerMessage, { type: T }>;
    }
  }

  async close(): Promise<void> {
    if (this.closedWith !== undefined) return;
    this.socket.close();
    await once(this.socket, "close");
  }
}

function decode(data: Buffer): OutputFrame {
  return {
    kind: data.readUInt8(0),
    channel: data.readUInt32LE(1),
    at: Number(data.readBigUInt64LE(5)),
    offset: Number(data.readBigUInt64LE(13)),
    bytes: data.subarray(binaryHeader.bytes),
  };
}
