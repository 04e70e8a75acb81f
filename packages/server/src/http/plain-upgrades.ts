import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";

/** Headers that speak of the connection to the next one only, and of the offer to change it. */
const dropped = new Set(["connection", "upgrade", "http2-settings"]);

export function wantsWebSocket({ headers }: IncomingMessage): boolean {
  return headers.upgrade?.toLowerCase().includes("websocket") === true;
}

/** Other ways to speak HTTP itself: clients that would like them offer them with any request, and go on without. */
const httpItself = /^(h2c?|http\/.*|tls\/.*)$/i;

/**
 * Whether nobody behind this server is to see the offer. A body belongs to the request and comes before the switch (RFC
 * 9110, 7.8), while Node hands both over as one. And over another HTTP, requests would pass by all that is looked at in
 * the first.
 */
export function isPassedOver({ headers }: IncomingMessage): boolean {
  const hasBody = headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
  const protocols = (headers.upgrade ?? "").split(",").map((name) => name.trim());
  return hasBody || protocols.every((name) => httpItself.test(name));
}

/**
 * Answers a request that offers another protocol, such as `Upgrade: h2c`, as if it did not: a server may pass over the
 * offer (RFC 9110, 7.8). Some clients make it with every request, also with a body. Node gives such a request away
 * together with its connection, so it is put back at the front of what comes over that.
 */
export function answerPlainly(server: Server, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  const { method = "GET", url = "/", httpVersion, rawHeaders } = request;
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? "";
    if (!dropped.has(name.toLowerCase())) lines.push(`${name}: ${rawHeaders[index + 1] ?? ""}`);
  }
  if (/\bclose\b/i.test(request.headers.connection ?? "")) lines.push("Connection: close");
  // As Node reads them: a byte per character.
  const start = Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
  socket.unshift(Buffer.concat([start, head]));
  server.emit("connection", socket);
}
