import { once } from "node:events";
import { createServer, request as plainRequest, type IncomingMessage, type Server } from "node:http";
import { request as secureRequest } from "node:https";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { join } from "./port-relay.ts";

/** Where a port is reached through a server. */
export interface PortUrl {
  url: string;
  token?: string | undefined;
}

/** Leads HTTP and WebSocket requests on this machine to ports that a server guards with a token. */
export class HttpRelay implements AsyncDisposable {
  readonly #urlOf: (port: number) => Promise<PortUrl>;
  readonly #servers = new Map<number, Server>();
  readonly #sockets = new Set<Duplex>();

  constructor(urlOf: (port: number) => Promise<PortUrl>) {
    this.#urlOf = urlOf;
  }

  async forward(port: number): Promise<{ host: string; port: number }> {
    const server = this.#servers.get(port) ?? (await this.#listen(port));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("The relay has no port");
    return { host: "127.0.0.1", port: address.port };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all([...this.#servers.values()].map((server) => new Promise((resolve) => server.close(resolve))));
    this.#servers.clear();
  }

  async #listen(port: number): Promise<Server> {
    const target = await this.#urlOf(port);
    const server = createServer((incoming, response) => {
      const outgoing = send(incoming, target);
      outgoing.once("response", (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.statusMessage, answer.headers);
        pipeline(answer, response).catch(() => response.destroy());
      });
      outgoing.once("error", () => {
        if (!response.headersSent) response.writeHead(502);
        response.end();
      });
      response.once("close", () => outgoing.destroy());
      incoming.pipe(outgoing);
    });
    server.on("upgrade", (incoming: IncomingMessage, client: Duplex, head: Buffer) => {
      const outgoing = send(incoming, target);
      client.on("error", () => outgoing.destroy());
      outgoing.once("error", () => client.destroy());
      outgoing.once("response", (answer) => client.end(headOf(answer)));
      outgoing.once("upgrade", (answer, inside, first) => {
        client.write(headOf(answer));
        if (first.byteLength > 0) client.write(first);
        if (head.byteLength > 0) inside.write(head);
        join(client, inside);
      });
      outgoing.end();
    });
    server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    this.#servers.set(port, server);
    return server;
  }
}

function send(incoming: IncomingMessage, { url, token }: PortUrl): ReturnType<typeof plainRequest> {
  const target = new URL(url);
  return (target.protocol === "https:" ? secureRequest : plainRequest)({
    hostname: target.hostname,
    port: target.port,
    path: `${target.pathname.replace(/\/$/, "")}${incoming.url ?? "/"}`,
    method: incoming.method,
    headers: { ...incoming.headers, host: target.host, ...(token === undefined ? {} : { "x-port-token": token }) },
  });
}

function headOf({ statusCode = 502, statusMessage = "", rawHeaders }: IncomingMessage): string {
  const lines = [`HTTP/1.1 ${statusCode} ${statusMessage}`];
  for (let at = 0; at < rawHeaders.length; at += 2) lines.push(`${rawHeaders[at]}: ${rawHeaders[at + 1]}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}
