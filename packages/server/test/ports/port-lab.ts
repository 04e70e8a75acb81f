import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener, type Server } from "node:http";
import { connect, type AddressInfo, type Server as TcpServer } from "node:net";
import { SandboxError, SandboxId } from "@atoll/protocol";
import { PortProxy } from "../../src/ports/port-proxy.ts";
import { PortTokens } from "../../src/ports/port-tokens.ts";

export const id = SandboxId.parse("abcdefghij0123456789");
export const tokens = new PortTokens(Buffer.alloc(32, 1));

/** A proxy in front of programs that listen on this machine instead of in a sandbox. */
export class PortLab {
  isPublic = false;
  dialError: Error | undefined;
  /** The numbers of open connections that the proxy reported. */
  readonly counts: number[] = [];
  /** The requests that arrived inside. */
  readonly seen: IncomingMessage[] = [];
  answer: RequestListener = (_request, response) => void response.end("inside");
  readonly inside: Server = createServer((request, response) => {
    this.seen.push(request);
    this.answer(request, response);
  });
  readonly proxy: PortProxy;
  port = 0;
  base = "";
  readonly #outside: Server;
  #open: (Server | TcpServer)[] = [];

  private constructor() {
    this.proxy = new PortProxy({
      dial: async (_id, port, { family }) => {
        if (this.dialError !== undefined) throw this.dialError;
        const socket = connect({ port, host: family === 6 ? "::1" : "127.0.0.1", allowHalfOpen: true });
        await once(socket, "connect").catch(() => {
          throw new SandboxError("spawn_failed", "Cannot connect", { details: { errno: "ECONNREFUSED" } });
        });
        return socket;
      },
      tokens,
      isPublic: () => this.isPublic,
      baseUrl: () => this.base,
      domains: ["ports.test"],
      onConnections: (_id, open) => this.counts.push(open),
      maxConnections: 3,
    });
    this.#outside = createServer((request, response) => {
      if (!this.proxy.handle(request, response)) response.writeHead(404).end("not a port");
    });
    this.#outside.on("upgrade", (request, socket, head) => {
      if (!this.proxy.upgrade(request, socket, head)) socket.destroy();
    });
  }

  static async open(): Promise<PortLab> {
    const lab = new PortLab();
    lab.port = await lab.listen(lab.inside);
    lab.base = `http://127.0.0.1:${await lab.listen(lab.#outside)}`;
    return lab;
  }

  async listen(server: Server | TcpServer, host = "127.0.0.1"): Promise<number> {
    server.listen(0, host);
    await once(server, "listening");
    this.#open.push(server);
    return (server.address() as AddressInfo).port;
  }

  close(): void {
    this.inside.closeAllConnections();
    this.#outside.closeAllConnections();
    for (const server of this.#open.splice(0)) server.close();
  }

  get token(): string {
    return tokens.tokenFor(id, this.port);
  }

  url(path: string, port = this.port): string {
    return `${this.base}/p/${id}/${port}${path}`;
  }

  get(path: string, init: Omit<RequestInit, "headers"> & { headers?: Record<string, string> } = {}): Promise<Response> {
    const headers = { "x-port-token": this.token, ...init.headers };
    return fetch(this.url(path), { redirect: "manual", ...init, headers });
  }

  /** Sends raw bytes, because `fetch` does not send everything that a proxy has to handle. */
  async raw(head: readonly string[], body = ""): Promise<string> {
    const socket = connect(Number(new URL(this.base).port), "127.0.0.1");
    socket.write([...head, "", body].join("\r\n"));
    let text = "";
    for await (const chunk of socket) text += String(chunk);
    return text;
  }
}
