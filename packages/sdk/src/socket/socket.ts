import { SandboxError, ServerMessage, websocketProtocol, type ClientMessageInput } from "@atoll/protocol";
import type { Connection } from "../connection-options.ts";
import type { WebSocketLike } from "../environment/environment.ts";
import { connectionError, errorFromWire, retryAfterMs } from "../errors.ts";
import { backoffMs, later } from "../http/backoff.ts";
import { readReply } from "../http/lenient.ts";
import type { Channel, ChannelLink, ChannelRequest } from "./channel.ts";
import { decodeFrame, encodeFrame } from "./frame.ts";
import { RetryLater } from "./retry-later.ts";

/** How long a socket without channels stays open for the next one. */
const lingerMs = 10_000;

/**
 * The one WebSocket of a client. The first channel opens it; while there are channels it is opened again whenever it
 * breaks, and it is closed some time after the last one.
 */
export class Socket {
  readonly #connection: Connection;
  readonly #channels = new Map<number, Channel>();
  readonly #putOff: RetryLater;
  #nextChannel = 1;
  /** The current connection; events of any other come too late to matter. */
  #live: LiveConnection | undefined;
  #attempt = 0;
  #downSinceMs: number | undefined;
  #stopTimer: (() => void) | undefined;
  /** Set while channels get their end: one that would continue under a new number must not connect again. */
  #closing: SandboxError | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#putOff = new RetryLater(connection.reconnectForMs);
  }

  open(channel: Channel): ChannelLink {
    if (this.#closing !== undefined) return refuse(channel, this.#closing);
    const number = this.#nextChannel;
    this.#nextChannel += 1;
    this.#channels.set(number, channel);
    if (this.#live !== undefined) {
      this.#setTimer(undefined);
      this.#live.keepAlive(true);
      this.#live.subscribe(number, channel);
    } else if (this.#stopTimer === undefined) {
      this.#connect();
    }
    return {
      send: (request) => this.#live?.sendOn(number, request),
      sendFrame: (frame) => this.#live?.sendBytes(encodeFrame({ ...frame, channel: number })),
      close: () => {
        if (!this.#channels.delete(number)) return;
        this.#putOff.forget(number);
        this.#live?.sendOn(number, { type: "close" });
        if (this.#channels.size === 0) this.#linger();
      },
    };
  }

  /** Ends the connection; channels that are open end with an error. */
  close(): void {
    this.#closing = new SandboxError("unavailable", "Cannot go on: the client was closed");
    this.#fail(this.#closing);
    this.#closing = undefined;
  }

  #linger(): void {
    if (this.#live === undefined) {
      this.#setTimer(undefined);
      return;
    }
    this.#live.keepAlive(false);
    this.#setTimer(later(lingerMs, () => this.#drop()));
  }

  #connect(): void {
    this.#setTimer(undefined);
    const live = new LiveConnection(this.#connection, {
      onWelcome: () => {
        this.#attempt = 0;
        this.#downSinceMs = undefined;
        for (const [number, channel] of this.#channels) live.subscribe(number, channel);
        if (this.#channels.size === 0) this.#linger();
      },
      onMessage: (message) => this.#onMessage(message),
      onBytes: (bytes) => {
        const frame = decodeFrame(bytes);
        if (frame !== undefined) this.#channels.get(frame.channel)?.onFrame?.(frame);
      },
      onClosed: (cause) => {
        if (this.#live === live) this.#reconnect(cause);
      },
    });
    this.#live = live;
  }

  #onMessage(message: ServerMessage): void {
    if (message.type === "shutdown") {
      this.#live?.end(new Error("the server is shutting down"));
    } else if (message.type === "error") {
      const error = errorFromWire(message.error, this.#connection.baseUrl);
      if (message.channel === undefined) {
        if (error.retryable || retryAfterMs(error) !== undefined) this.#live?.end(error);
        else this.#fail(error);
        return;
      }
      this.#onRefusal(message.channel, error);
    } else if ("channel" in message) {
      this.#putOff.forget(message.channel);
      this.#channels.get(message.channel)?.onMessage(message);
    }
  }

  #onRefusal(number: number, error: SandboxError): void {
    const channel = this.#channels.get(number);
    if (channel === undefined) return;
    const ms = retryAfterMs(error);
    if (ms !== undefined && this.#putOff.wait(number, ms, () => this.#live?.subscribe(number, channel))) {
      channel.onDisconnect?.();
      return;
    }
    this.#channels.delete(number);
    this.#putOff.forget(number);
    if (this.#channels.size === 0) this.#linger();
    channel.onError(error);
  }

  #reconnect(cause: unknown): void {
    this.#live = undefined;
    this.#putOff.stop();
    if (this.#channels.size === 0) {
      this.#setTimer(undefined);
      return;
    }
    for (const channel of this.#channels.values()) channel.onDisconnect?.();
    this.#downSinceMs ??= Date.now();
    const refusal = cause instanceof SandboxError ? cause : undefined;
    const askedMs = refusal === undefined ? undefined : retryAfterMs(refusal);
    if (Date.now() + (askedMs ?? 0) - this.#downSinceMs > this.#connection.reconnectForMs) {
      const isPutOff = refusal !== undefined && askedMs !== undefined;
      this.#fail(isPutOff ? refusal : connectionError(this.#connection.baseUrl, cause));
      return;
    }
    // A reader waits for a channel, so this timer keeps the program alive.
    const timer = setTimeout(() => this.#connect(), askedMs ?? backoffMs(this.#attempt));
    this.#attempt += 1;
    this.#setTimer(() => clearTimeout(timer));
  }

  #fail(error: SandboxError): void {
    const channels = [...this.#channels.values()];
    this.#channels.clear();
    this.#putOff.clear();
    this.#drop();
    for (const channel of channels) channel.onError(error);
  }

  #drop(): void {
    const live = this.#live;
    this.#live = undefined;
    this.#setTimer(undefined);
    this.#attempt = 0;
    this.#downSinceMs = undefined;
    live?.end();
  }

  #setTimer(stop: (() => void) | undefined): void {
    this.#stopTimer?.();
    this.#stopTimer = stop;
  }
}

function refuse(channel: Channel, error: SandboxError): ChannelLink {
  queueMicrotask(() => channel.onError(error));
  return { send: () => undefined, sendFrame: () => undefined, close: () => undefined };
}

interface LiveEvents {
  onWelcome(): void;
  onMessage(message: ServerMessage): void;
  onBytes(bytes: Uint8Array): void;
  onClosed(cause: unknown): void;
}

/** One connection from its opening to its end, with the greeting and the heartbeat. */
class LiveConnection {
  readonly #events: LiveEvents;
  readonly #connection: Connection;
  #socket: WebSocketLike | undefined;
  #isWelcome = false;
  #isOver = false;
  #stopTimer: () => void;
  #hasHeard = false;
  #pings = 0;

  constructor(connection: Connection, events: LiveEvents) {
    this.#connection = connection;
    this.#events = events;
    this.#stopTimer = this.#after(websocketProtocol.helloTimeoutMs, () => this.end(new Error("no welcome in time")));
    connection.openWebSocket(`${connection.baseUrl.replace(/^http/, "ws")}${websocketProtocol.path}`).then(
      (socket) => this.#use(socket),
      (error: unknown) => this.end(error),
    );
  }

  subscribe(number: number, channel: Channel): void {
    if (this.#isWelcome) this.sendOn(number, channel.subscribe());
  }

  sendOn(channel: number, request: ChannelRequest): void {
    if (this.#isWelcome) this.#send({ ...request, channel });
  }

  sendBytes(bytes: Uint8Array): void {
    if (this.#isWelcome) this.#socket?.send(bytes);
  }

  keepAlive(isNeeded: boolean): void {
    this.#socket?.keepAlive?.(isNeeded);
  }

  end(cause?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#isWelcome = false;
    this.#stopTimer();
    this.#socket?.close();
    this.#events.onClosed(cause);
  }

  #use(socket: WebSocketLike): void {
    this.#socket = socket;
    // The listener is needed after the end too: an error without one would end the program in Node.
    socket.addEventListener("error", (event) => this.end(errorIn(event)));
    if (this.#isOver) {
      socket.close();
      return;
    }
    const { apiKey, sandboxToken, holder } = this.#connection;
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () =>
      this.#send({ type: "hello", version: websocketProtocol.version, key: apiKey, sandboxToken, holder }),
    );
    socket.addEventListener("close", ({ code, reason }) =>
      this.end(new Error(`the connection was closed (${code}) ${reason}`.trimEnd())),
    );
    socket.addEventListener("message", ({ data }) => {
      if (!this.#isOver) this.#receive(data);
    });
  }

  #receive(data: unknown): void {
    this.#hasHeard = true;
    if (data instanceof ArrayBuffer) return this.#events.onBytes(new Uint8Array(data));
    const message = readMessage(data, this.#connection.baseUrl);
    if (message === undefined) return;
    if (message.type === "welcome") {
      this.#stopTimer();
      this.#stopTimer = this.#after(websocketProtocol.heartbeatMs, () => this.#beat());
      this.#isWelcome = true;
      this.#events.onWelcome();
    } else {
      this.#events.onMessage(message);
    }
  }

  /** Ends the connection if nothing came for a whole interval: the other end answers pings. */
  #beat(): void {
    if (!this.#hasHeard) return this.end(new Error("the server is silent"));
    this.#hasHeard = false;
    this.#pings += 1;
    this.#send({ type: "ping", id: this.#pings });
    this.#stopTimer = this.#after(websocketProtocol.heartbeatMs, () => this.#beat());
  }

  #send(message: ClientMessageInput): void {
    this.#socket?.send(JSON.stringify(message));
  }

  #after(ms: number, call: () => void): () => void {
    return later(ms, call);
  }
}

const knownTypes = new Set<unknown>(ServerMessage.options.map(({ shape }) => shape.type.value));

/**
 * Returns `undefined` for a message of a type that this version does not know, from a newer server. A message that it
 * knows and cannot read is an error.
 */
function readMessage(data: unknown, from: string): ServerMessage | undefined {
  let json: { type?: unknown; channel?: unknown };
  try {
    json = Object(JSON.parse(String(data))) as typeof json;
  } catch {
    const message = `Cannot understand what ${from} sends: it is not JSON`;
    const suggestion = "Check that baseUrl is the address of an Atoll server";
    return { type: "error", error: { code: "internal", message, suggestion } };
  }
  if (!knownTypes.has(json.type)) return undefined;
  try {
    return readReply(ServerMessage, json, from);
  } catch (thrown) {
    const { code, message } = thrown as SandboxError;
    return {
      type: "error",
      ...(typeof json.channel === "number" ? { channel: json.channel } : {}),
      error: { code, message },
    };
  }
}

function errorIn(event: unknown): unknown {
  if (typeof event !== "object" || event === null) return event;
  if ("error" in event && event.error instanceof Error) return event.error;
  return new Error("message" in event && typeof event.message === "string" ? event.message : "the connection broke");
}
