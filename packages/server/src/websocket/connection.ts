import type { Writable } from "node:stream";
import type { AuditEntry } from "@atoll/guard";
import {
  ClientMessage,
  firstToAbort,
  SandboxError,
  websocketProtocol,
  type CommandId,
  type KeyVerb,
  type SandboxId,
  type ServerMessage,
} from "@atoll/protocol";
import type { WebSocket } from "ws";
import type { Credentials, Authenticator } from "../auth/authenticator.ts";
import { assertMay, nameOf, type Principal } from "../auth/principal.ts";
import { errorReply } from "../http/error-reply.ts";
import { parsePart } from "../http/parse-request.ts";
import type { Log } from "../telemetry/log.ts";
import { AwaitedChannel } from "./awaited-channel.ts";
import { BufferedBytes } from "./buffered-bytes.ts";
import { ChannelAudit } from "./channel-audit.ts";
import type { Channel, ChannelLink, ChannelSources } from "./channel.ts";
import { openEvents } from "./events-channel.ts";
import { FollowChannel } from "./follow-channel.ts";
import { decodeBinary } from "./frames.ts";
import { GatheredWrites } from "./gathered-writes.ts";
import { openWatch } from "./watch-channel.ts";

export interface ConnectionOptions {
  authenticator: Authenticator;
  sources: ChannelSources;
  assertSees(principal: Principal, sandboxId: SandboxId): void;
  /** Reads from the store which server has a sandbox that is not here. */
  locate(sandboxId: SandboxId): Promise<void>;
  serverId: string;
  heartbeatMs: number;
  maxChannels: number;
  audit: (entry: AuditEntry) => void;
  log: Log;
}

/** The RFC 6455 code for a client that broke the rules. */
const policyViolation = 1008;
const serverStops = 1001;
/** The number of unsent bytes above which bulk data waits for the socket. */
const bufferedBytes = 1024 * 1024;
/**
 * The number of unsent bytes above which a connection is closed: replies do not wait, so a client that asks without end
 * and reads no replies is disconnected.
 */
const mostBufferedBytes = 8 * 1024 * 1024;

type OpenMessage = Extract<ClientMessage, { type: "follow" | "watch" | "events" }>;

/** The connection of one client: its greeting, its channels and its heartbeat. Commands go on whatever ends it. */
export class Connection {
  #socket: WebSocket;
  #writes: GatheredWrites;
  #options: ConnectionOptions;
  #credentials: Credentials | undefined;
  /** The principal of the credentials. A key has one, and so does a sandbox's token. */
  #principal: Principal | undefined;
  #holder: string | undefined;
  #channels = new Map<number, Channel>();
  #buffered = new BufferedBytes(websocketProtocol.connectionBytes);
  /** Resolves when the last write has left the socket. */
  #flushed: Promise<void> = Promise.resolve();
  #closed = new AbortController();
  #isAlive = true;
  #helloTimer: NodeJS.Timeout;
  #heartbeat: NodeJS.Timeout;

  /** `stream` is the stream that the socket writes to. */
  constructor(socket: WebSocket, stream: Writable, options: ConnectionOptions) {
    this.#socket = socket;
    this.#writes = new GatheredWrites(stream);
    this.#options = options;
    this.#helloTimer = setTimeout(() => {
      this.#refuse(new SandboxError("timed_out", "Cannot continue: no hello arrived in time"));
    }, websocketProtocol.helloTimeoutMs);
    this.#heartbeat = setInterval(() => this.#beat(), options.heartbeatMs);
    socket.on("message", (data, isBinary) => this.#receive(asBuffer(data), isBinary));
    socket.on("pong", () => {
      this.#isAlive = true;
    });
    socket.on("close", () => this.#end());
    // `close` follows this event, and handles the end.
    socket.on("error", () => undefined);
  }

  /** Asks the client to reconnect, and ends the connection. */
  shutdown(): void {
    this.#send({ type: "shutdown" });
    this.#socket.close(serverStops, "the server stops");
    setTimeout(() => this.#socket.terminate(), 1_000).unref();
  }

  #beat(): void {
    if (!this.#isAlive) {
      this.#socket.terminate();
      return;
    }
    this.#isAlive = false;
    this.#socket.ping();
  }

  #receive(data: Buffer, isBinary: boolean): void {
    this.#isAlive = true;
    try {
      if (isBinary) this.#onBinary(data);
      else this.#onMessage(parsePart(ClientMessage, parseJson(data), "take this message"));
    } catch (error) {
      this.#refuse(error);
    }
  }

  #onBinary(data: Buffer): void {
    const frame = decodeBinary(data);
    if (frame === undefined || frame.kind !== "stdin") throw malformed("this binary message is not input");
    if (this.#credentials === undefined) throw malformed("hello comes first");
    // Input for a channel that has just ended is not a mistake of the client.
    this.#channels.get(frame.channel)?.onStdin?.(frame.offset, frame.bytes);
  }

  #onMessage(message: ClientMessage): void {
    if (message.type === "hello") return this.#hello(message);
    if (this.#credentials === undefined) throw malformed("hello comes first");
    switch (message.type) {
      case "ping":
        return this.#send({ type: "pong", id: message.id });
      case "follow":
      case "watch":
      case "events":
        return this.#open(message);
      case "close":
        return this.#close(message.channel);
      case "ack":
      case "stdin_end":
      case "signal":
      case "resize":
        return this.#channels.get(message.channel)?.onMessage?.(message);
    }
  }

  #hello({ key, sandboxToken, holder }: Extract<ClientMessage, { type: "hello" }>): void {
    if (this.#credentials !== undefined) throw malformed("hello comes once");
    // A sandbox's token can only be checked when a sandbox is named.
    if (key !== undefined || sandboxToken === undefined) {
      this.#principal = this.#options.authenticator.admit({ key }, "connect", undefined);
      this.#endWith(this.#principal);
    }
    this.#credentials = { key, sandboxToken };
    this.#holder = holder;
    clearTimeout(this.#helloTimer);
    this.#send({ type: "welcome", version: 1, serverId: this.#options.serverId });
  }

  #endWith(principal: Principal): void {
    const revoked = this.#options.authenticator.untilRevoked(principal);
    revoked?.addEventListener("abort", () => this.#refuse(revoked.reason), { once: true, signal: this.#closed.signal });
  }

  #open(message: OpenMessage): void {
    const { channel } = message;
    if (this.#channels.has(channel)) throw malformed(`channel ${channel} is open already`);
    const link = this.#link(channel);
    try {
      if (this.#channels.size >= this.#options.maxChannels) {
        throw new SandboxError("limit_reached", `Cannot open a channel: ${this.#channels.size} are open`, {
          suggestion: "Close some, or open another connection.",
        });
      }
      const isHere = message.type === "events" || this.#options.sources.isHere(message.sandboxId);
      this.#channels.set(channel, isHere ? this.#start(message, link) : this.#await(message, link));
    } catch (error) {
      this.#auditRefused(message, link, error);
      link.fail(error);
    }
  }

  /** Records a watch that was refused. A watch that is open records its own end. */
  #auditRefused(message: OpenMessage, { signal }: ChannelLink, thrown: unknown): void {
    if (message.type !== "watch") return;
    const { sandboxId } = message;
    const who = this.#principal === undefined ? "nobody" : nameOf(this.#principal);
    const result = signal.aborted ? "client left" : errorReply(thrown).error.code;
    this.#options.audit({ who, what: "watchFiles", sandboxId, result, details: { id: sandboxId } });
  }

  #await(message: Exclude<OpenMessage, { type: "events" }>, link: ChannelLink): Channel {
    const { sources } = this.#options;
    const { sandboxId } = message;
    const open = async (): Promise<Channel> => {
      await this.#options.locate(sandboxId);
      this.#assertMay(message.type === "watch" ? "files" : "read", `${message.type} in a sandbox`, sandboxId);
      const leave = await sources.acquire(sandboxId, link.signal);
      link.signal.addEventListener("abort", leave, { once: true });
      if (link.signal.aborted) leave();
      return this.#start(message, link);
    };
    return new AwaitedChannel(link, () =>
      open().catch((error: unknown) => {
        this.#auditRefused(message, link, error);
        throw error;
      }),
    );
  }

  #start(message: OpenMessage, link: ChannelLink): Channel {
    const { sources } = this.#options;
    switch (message.type) {
      case "follow": {
        const { sandboxId, commandId, rollbacks } = message;
        const principal = this.#admit("read", "follow a command", sandboxId);
        const command = sources.command(sandboxId, commandId, rollbacks);
        return new FollowChannel(link, command, message, {
          audit: this.#audit(link, principal, { id: sandboxId, commandId }),
          prepareControl: async () => {
            this.#assertNotHeld(this.#assertMay("commands", "control a command", sandboxId), sandboxId);
            if (command.isRunning) await sources.wake(sandboxId);
          },
        });
      }
      case "watch": {
        const { sandboxId } = message;
        const principal = this.#admit("files", "watch files", sandboxId);
        this.#assertNotHeld(principal, sandboxId);
        link.signal.addEventListener("abort", sources.retain(sandboxId), { once: true });
        return openWatch(link, sources, message, this.#audit(link, principal, { id: sandboxId }));
      }
      case "events":
        return openEvents(link, sources, message, this.#admit("events", "follow events", undefined));
    }
  }

  /** Admits the request of a channel, which counts as a request. */
  #admit(verb: KeyVerb, asked: string, sandboxId: SandboxId | undefined): Principal {
    const principal = this.#options.authenticator.admit(this.#credentials ?? {}, asked, sandboxId);
    this.#principal = principal;
    this.#assertSees(principal, verb, asked, sandboxId);
    return principal;
  }

  /** Checks a message within a channel, which does not count as a request. */
  #assertMay(verb: KeyVerb, asked: string, sandboxId: SandboxId): Principal {
    const principal = this.#options.authenticator.authenticate(this.#credentials ?? {}, asked, sandboxId);
    this.#principal = principal;
    this.#assertSees(principal, verb, asked, sandboxId);
    return principal;
  }

  #assertNotHeld(principal: Principal, sandboxId: SandboxId): void {
    this.#options.sources.assertNotHeld(sandboxId, { who: nameOf(principal), holder: this.#holder });
  }

  #assertSees(principal: Principal, verb: KeyVerb, asked: string, sandboxId: SandboxId | undefined): void {
    assertMay(principal, verb, asked, sandboxId);
    if (sandboxId !== undefined) this.#options.assertSees(principal, sandboxId);
  }

  #audit(
    { signal }: ChannelLink,
    principal: Principal,
    params: { id: SandboxId; commandId?: CommandId },
  ): ChannelAudit {
    return new ChannelAudit({ emit: this.#options.audit, principal, params, signal });
  }

  #link(number: number): ChannelLink {
    const stop = new AbortController();
    const signal = firstToAbort(stop.signal, this.#closed.signal);
    const remove = (): void => {
      const isOurs = this.#channels.get(number)?.link === link;
      if (isOurs) this.#channels.delete(number);
      stop.abort(new Error("The channel is closed"));
    };
    const link: ChannelLink = {
      channel: number,
      signal,
      send: (message) => {
        if (!signal.aborted) this.#send(message);
      },
      buffer: (bytes) => this.#buffered.take(bytes),
      sendBulk: (data) => this.#sendBulk(data, signal),
      end: remove,
      fail: (error) => {
        if (signal.aborted) return;
        this.#send({ type: "error", channel: number, error: this.#wireError(error) });
        remove();
      },
    };
    return link;
  }

  #close(channel: number): void {
    this.#channels.get(channel)?.link.end();
  }

  #send(message: ServerMessage): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    if (this.#socket.bufferedAmount > mostBufferedBytes) this.#socket.terminate();
    else this.#write(JSON.stringify(message));
  }

  /** Waits while the socket has too many unsent bytes: the windows of many channels add up. */
  async #sendBulk(data: Buffer | string, signal: AbortSignal): Promise<void> {
    while (this.#socket.bufferedAmount > bufferedBytes) await this.#flushed;
    signal.throwIfAborted();
    this.#writes.gather();
    this.#write(data);
  }

  #write(data: Buffer | string): void {
    this.#flushed = new Promise((resolve, reject) => {
      this.#socket.send(data, (error) => {
        if (error !== undefined && error !== null) reject(error);
        else resolve();
      });
    });
    // A caller that waits gets the error; for the others, the connection closes.
    this.#flushed.catch(() => undefined);
  }

  #wireError(thrown: unknown): { code: string; message: string } {
    const { error, isUnexpected } = errorReply(thrown);
    if (isUnexpected) this.#options.log.error({ err: thrown }, "websocket channel failed");
    return error.toJSON() as { code: string; message: string };
  }

  #refuse(thrown: unknown): void {
    this.#send({ type: "error", error: this.#wireError(thrown) });
    this.#socket.close(policyViolation, "the error says why");
    setTimeout(() => this.#socket.terminate(), 1_000).unref();
  }

  #end(): void {
    clearTimeout(this.#helloTimer);
    clearInterval(this.#heartbeat);
    this.#closed.abort(new Error("The connection is closed"));
    this.#channels.clear();
  }
}

function malformed(because: string): SandboxError {
  return new SandboxError("invalid_argument", `Cannot take this message: ${because}`);
}

function parseJson(data: Buffer): unknown {
  try {
    return JSON.parse(data.toString("utf8"));
  } catch {
    throw malformed("it is not JSON");
  }
}

function asBuffer(data: Buffer | ArrayBuffer | Buffer[]): Buffer {
  if (Buffer.isBuffer(data)) return data;
  return Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data);
}
