import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { websocketProtocol } from "@atoll/protocol";
import { WebSocketServer, type WebSocket } from "ws";
import type { Metrics } from "../telemetry/metrics.ts";
import { Connection, type ConnectionOptions } from "./connection.ts";

export interface WebSocketsOptions extends Omit<ConnectionOptions, "serverId" | "maxChannels"> {
  corsOrigins: readonly string[];
  metrics: Metrics;
  stopping: AbortSignal;
  maxMessageBytes?: number;
  maxChannels?: number;
}

/** The WebSockets of one server. */
export class WebSockets {
  #server: WebSocketServer;
  #connections = new Set<Connection>();
  #options: WebSocketsOptions;
  #serverId = randomUUID();

  constructor(options: WebSocketsOptions) {
    this.#options = options;
    this.#server = new WebSocketServer({
      noServer: true,
      maxPayload: options.maxMessageBytes ?? 1024 * 1024,
      perMessageDeflate: false,
      clientTracking: false,
    });
    options.stopping.addEventListener("abort", () => {
      for (const connection of this.#connections) connection.shutdown();
    });
  }

  /** Handles an upgrade to the WebSocket path. Returns false if it is for another path. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
    // The target is split as text, because a client may send one that is not a valid URL.
    const [path] = (request.url ?? "").split("?", 1);
    if (path !== websocketProtocol.path) return false;
    if (this.#options.stopping.aborted) refuse(socket, "503 Service Unavailable");
    else if (!this.#isAllowed(request)) refuse(socket, "403 Forbidden");
    else this.#server.handleUpgrade(request, socket, head, (webSocket) => this.#accept(webSocket, socket));
    return true;
  }

  /** Checks the origin. Browsers always send it; other programs do not. */
  #isAllowed({ headers }: IncomingMessage): boolean {
    return headers.origin === undefined || this.#options.corsOrigins.includes(headers.origin);
  }

  #accept(webSocket: WebSocket, stream: Duplex): void {
    const { metrics, maxChannels = 1_000 } = this.#options;
    const connection = new Connection(webSocket, stream, { ...this.#options, serverId: this.#serverId, maxChannels });
    this.#connections.add(connection);
    metrics.websocket(1);
    webSocket.once("close", () => {
      this.#connections.delete(connection);
      metrics.websocket(-1);
    });
  }
}

/** Refuses in plain HTTP, because there is no WebSocket yet. */
export function refuse(socket: Duplex, status: string): void {
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
}
