import { once } from "node:events";
import { createServer, connect, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";

/**
 * Leads connections on this machine to ports of an app that has no network of its own: through a socket file in a
 * directory that both see. The first line of a connection is the number of the port; then bytes pass unchanged.
 */
export class PortForwarder implements AsyncDisposable {
  readonly #socketPath: string;
  readonly #servers = new Map<number, Server>();
  readonly #sockets = new Set<Socket>();

  constructor(socketPath: string) {
    this.#socketPath = socketPath;
  }

  async forward(port: number): Promise<{ host: string; port: number }> {
    const known = this.#servers.get(port);
    const server = known ?? (await this.#listen(port));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("The forwarder has no port");
    return { host: "127.0.0.1", port: address.port };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all([...this.#servers.values()].map((server) => new Promise((resolve) => server.close(resolve))));
    this.#servers.clear();
  }

  async #listen(port: number): Promise<Server> {
    const server = createServer((client) => {
      const inside = connect(this.#socketPath);
      inside.write(`${port}\n`);
      join(client, inside);
      for (const socket of [client, inside]) {
        this.#sockets.add(socket);
        socket.once("close", () => this.#sockets.delete(socket));
      }
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    this.#servers.set(port, server);
    return server;
  }
}

/** The end inside: accepts connections on the socket file and leads them to ports of the loopback. */
export function servePorts(socketPath: string): void {
  // A profile may later take the function away from the app, and with it from everyone who imports it.
  const connectInside = connect;
  createServer((outside) => {
    outside.once("data", (first: Buffer) => {
      const lineEnd = first.indexOf("\n");
      const port = Number(first.subarray(0, lineEnd).toString("ascii"));
      if (lineEnd === -1 || !Number.isInteger(port)) {
        outside.destroy();
        return;
      }
      outside.pause();
      const inside = connectInside(port, "127.0.0.1");
      const rest = first.subarray(lineEnd + 1);
      if (rest.byteLength > 0) inside.write(rest);
      join(outside, inside);
    });
    outside.on("error", () => outside.destroy());
  }).listen(socketPath);
}

/** Passes bytes both ways; when one side ends, so does the other. */
export function join(one: Duplex, other: Duplex): void {
  one.pipe(other);
  other.pipe(one);
  for (const [socket, peer] of [
    [one, other],
    [other, one],
  ] as const) {
    socket.on("error", () => peer.destroy());
    socket.once("close", () => peer.destroy());
  }
}
