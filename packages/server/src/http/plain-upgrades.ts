import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";

/** Headers that apply to one connection only, and the offer to change the protocol. */
const dropped = new Set(["connection", "upgrade", "http2-settings"]);

export function wantsWebSocket({ headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase().includes("websocket") === true;
}

/** Protocols that are other ways to speak HTTP itself: clients offer them with any request, and continue without. */
const httpItself = /^(h2c?|http\/.*|tls\/.*)$/i;

/**
 * Reports whether the offer of an upgrade is ignored instead of forwarded. A body belongs to the request and comes
 * before the switch (RFC 9110, 7.8), while Node passes both on as one. And after a switch to another HTTP, requests
 * would bypass all checks of this server.
 */
export function ignoresUpgrade({ headers }: IncomingMessage): boolean {
  const hasBody = headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
  const protocols = (headers.upgrade ?? "").split(",").map((name) => name.trim());
  return hasBody || protocols.every((name) => httpItself.test(name));
}

/**
 * Handles a request that offers another protocol, such as `Upgrade: h2c`, as if it did not: a server may ignore the
 * offer (RFC 9110, 7.8). Some clients make it with every request, also with a body. Node detaches such a request
 * together with its connection, so it is put back at the front of the connection's data.
 */
export function answerWithoutUpgrade(server: Server, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  const { method = "GET", url = "/", httpVersion, rawHeaders } = request;
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? "";
    if (!dropped.has(name.toLowerCase())) lines.push(`${name}: ${rawHeaders[index + 1] ?? ""}`);
  }
  if (/\bclose\b/i.test(request.headers.connection ?? "")) lines.push("Connection: close");
  // Node reads headers with one byte per character.
  const start = Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
  socket.unshift(Buffer.concat([start, head]));
  server.emit("connection", socket);
}
