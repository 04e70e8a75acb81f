import { once } from "node:events";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Fault, FaultPlan } from "./faults.ts";

export interface Received {
  method: string;
  /** The decoded parts of the path. */
  path: string[];
  query: URLSearchParams;
  headers: Record<string, string>;
  body: Buffer;
}

export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: Buffer | string;
}

export interface Operation {
  /** The name of the operation in the service's own documentation. */
  name: string;
  key: string;
  run: () => Answer;
}

export interface Dialect {
  /** Parses a request. The operation happens only when `run` is called. */
  understand: (request: Received) => Operation;
  refusal: (status: number, code: string, key: string) => Answer;
}

export interface SeenRequest {
  operation: string;
  key: string;
  headers: Record<string, string>;
  sizeBytes: number;
}

/** An object store in memory behind HTTP on loopback. It runs in one thread, so that every race has one winner. */
export class ObjectServer {
  readonly #dialect: Dialect;
  readonly #server = createServer((request, response) => void this.#serve(request, response));
  readonly #counts = new Map<string, number>();
  /** Every request that arrived completely, in order. */
  readonly seen: SeenRequest[] = [];
  faults: FaultPlan = () => undefined;

  constructor(dialect: Dialect) {
    this.#dialect = dialect;
  }

  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, "close");
  }

  /** Forgets the requests seen and the planned faults; objects stay. */
  calm(): void {
    this.faults = () => undefined;
    this.#counts.clear();
    this.seen.length = 0;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const received = await receive(request);
      const operation = this.#dialect.understand(received);
      const nth = (this.#counts.get(operation.name) ?? 0) + 1;
      this.#counts.set(operation.name, nth);
      const { name, key } = operation;
      this.seen.push({ operation: name, key, headers: received.headers, sizeBytes: received.body.length });
      await this.#answer(operation, this.faults({ operation: name, key, nth }), response);
    } catch {
      // The client went away, or its request is not supported: neither can get a response.
      response.destroy();
    }
  }

  async #answer(operation: Operation, fault: Fault | undefined, response: ServerResponse): Promise<void> {
    if (fault?.do === "hold") await fault.until;
    if (fault?.do === "cut") return void response.destroy();
    if (fault?.do === "refuse") {
      return send(response, this.#dialect.refusal(fault.status, fault.code, operation.key));
    }
    if (fault?.do === "answer") return send(response, { status: 200, ...fault });
    const answer = operation.run();
    if (fault?.do === "act-then-cut") return void response.destroy();
    if (fault?.do === "cut-body") return cutShort(response, answer, fault.afterBytes);
    send(response, answer);
  }
}

async function receive(request: IncomingMessage): Promise<Received> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const url = new URL(request.url ?? "/", "http://localhost");
  return {
    method: request.method ?? "GET",
    path: url.pathname.split("/").slice(1).map(decodeURIComponent),
    query: url.searchParams,
    headers: Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)])),
    body: Buffer.concat(chunks),
  };
}

function head(answer: Answer): Record<string, string> {
  const length = String(Buffer.byteLength(answer.body ?? ""));
  return { "content-length": length, ...answer.headers };
}

function send(response: ServerResponse, answer: Answer): void {
  response.writeHead(answer.status, head(answer));
  response.end(answer.body);
}

function cutShort(response: ServerResponse, answer: Answer, afterBytes: number): void {
  response.writeHead(answer.status, head(answer));
  response.write(Buffer.from(answer.body ?? "").subarray(0, afterBytes), () => response.destroy());
}
