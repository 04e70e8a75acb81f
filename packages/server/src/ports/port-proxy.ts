import { request as httpRequest, ServerResponse, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import { deadlineAfter, firstToAbort, type PortInfo, type SandboxId } from "@atoll/protocol";
import { requestHeaders, responseHeaders, type RawHeaders } from "./forwarded-headers.ts";
import { parsePortAddress, splitToken, type PortAddress } from "./port-address.ts";
import { explainFailure, sendText, tooManyConnections, wrongToken } from "./port-answers.ts";
import { portCookie, splitPortCookies } from "./port-cookie.ts";
import type { PortTokens } from "./port-tokens.ts";
import { dialEither, type Dial } from "./wait-for-port.ts";

export interface PortProxyOptions {
  /** Connects to a port of a sandbox, or throws the reason why it cannot. */
  dial(sandboxId: SandboxId, ...how: Parameters<Dial>): Promise<Duplex>;
  tokens: PortTokens;
  /** Reads from the store which server has a sandbox that is not here. */
  locate?(sandboxId: SandboxId): Promise<void>;
  /** Reports whether a port needs no token. It returns false for a sandbox that does not exist. */
  isPublic(sandboxId: SandboxId, port: number): boolean;
  /** Returns the URL under which clients reach this server, such as `https://atoll.example.com`. */
  baseUrl(): string;
  /** The domains for addresses of the form `<port>-<sandbox>.<domain>`. They have to resolve to this server. */
  domains?: readonly string[];
  /** Called whenever a connection to a port of the sandbox begins or ends, with the number of open ones. */
  onConnections?(sandboxId: SandboxId, open: number): void;
  /** The most connections to one sandbox at a time. They share its streams with commands and files. */
  maxConnections?: number;
}

const dialTimeoutMs = 10_000;
const keepAliveMs = 30_000;

/** An admitted request: its target without the token, and the cookie that stores the token. */
interface Admitted {
  address: PortAddress;
  cookie: string | undefined;
}

/** A request in progress. It is aborted when the client leaves or `close` is called. */
interface ForwardedRequest {
  address: PortAddress;
  gone: AbortController;
}

/**
 * Forwards HTTP and WebSocket requests to ports inside sandboxes. Every request has a connection of its own; bytes are
 * forwarded as they come, both ways, and a slow side makes the other one wait. It is called before the server's own
 * routes: `handle` and `upgrade` return whether the request was for a port.
 */
export class PortProxy {
  #options: PortProxyOptions;
  #requests = new Map<SandboxId, Set<ForwardedRequest>>();

  constructor(options: PortProxyOptions) {
    this.#options = options;
  }

  /** Describes a port for clients. */
  describe(sandboxId: SandboxId, port: number): PortInfo {
    const isPublic = this.#options.isPublic(sandboxId, port);
    const base = new URL(this.#options.baseUrl());
    const [domain] = this.#options.domains ?? [];
    const url =
      domain === undefined
        ? `${base.origin}/p/${sandboxId}/${port}/`
        : `${base.protocol}//${port}-${sandboxId}.${domain}${base.port === "" ? "" : `:${base.port}`}/`;
    return { url, port, isPublic, ...(isPublic ? {} : { token: this.#options.tokens.tokenFor(sandboxId, port) }) };
  }

  handle(request: IncomingMessage, response: ServerResponse): boolean {
    const address = this.#addressOf(request);
    if (address === undefined) return false;
    this.#process(request, response, address, (admitted, forwarded) =>
      this.#forward(request, response, admitted, forwarded),
    ).catch(() => response.destroy());
    return true;
  }

  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
    const address = this.#addressOf(request);
    if (address === undefined) return false;
    // This response carries whatever is sent before, or instead of, the switch to another protocol.
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    response.assignSocket(socket as Socket);
    response.once("finish", () => socket.end());
    socket.on("error", () => socket.destroy());
    this.#process(request, response, address, (admitted, forwarded) =>
      this.#switch(request, response, { socket, head }, admitted, forwarded),
    ).catch(() => socket.destroy());
    return true;
  }

  /** Closes all connections, or those of one sandbox, or those of one port. */
  close(sandboxId?: SandboxId, port?: number): void {
    for (const [id, requests] of this.#requests) {
      if (sandboxId !== undefined && id !== sandboxId) continue;
      for (const { address, gone } of requests) if (port === undefined || address.port === port) gone.abort(closed);
    }
  }

  #addressOf(request: IncomingMessage): PortAddress | undefined {
    return parsePortAddress(request.url ?? "", request.headers.host ?? "", this.#options.domains ?? []);
  }

  get #isSecure(): boolean {
    return this.#options.baseUrl().startsWith("https:");
  }

  async #process(
    request: IncomingMessage,
    response: ServerResponse,
    address: PortAddress,
    forward: (admitted: Admitted, forwarded: ForwardedRequest) => Promise<void>,
  ): Promise<void> {
    try {
      await this.#options.locate?.(address.sandboxId);
    } catch (error) {
      return sendText(response, explainFailure(error, address));
    }
    const admitted = this.#admit(request, address);
    if (admitted === undefined) return sendText(response, wrongToken);
    const redirect = redirectOf(request, admitted);
    if (redirect !== undefined) {
      const { cookie } = admitted;
      response.writeHead(302, {
        location: redirect,
        "cache-control": "no-store",
        ...(cookie === undefined ? {} : { "set-cookie": cookie }),
      });
      response.end();
      return;
    }
    const { sandboxId } = address;
    if ((this.#requests.get(sandboxId)?.size ?? 0) >= (this.#options.maxConnections ?? 256)) {
      return sendText(response, tooManyConnections);
    }
    const forwarded: ForwardedRequest = { address, gone: new AbortController() };
    const leave = (): void => forwarded.gone.abort(closed);
    // A client that disappears must not keep a sandbox busy for ever.
    request.socket.setKeepAlive(true, keepAliveMs);
    response.once("close", leave);
    this.#count(forwarded, 1);
    try {
      await forward(admitted, forwarded);
    } catch (error) {
      if (forwarded.gone.signal.aborted) response.destroy();
      else sendText(response, explainFailure(error, address));
    } finally {
      response.removeListener("close", leave);
      this.#count(forwarded, -1);
    }
  }

  #count(forwarded: ForwardedRequest, change: 1 | -1): void {
    const { sandboxId } = forwarded.address;
    const requests = this.#requests.get(sandboxId) ?? new Set();
    if (change === 1) requests.add(forwarded);
    else requests.delete(forwarded);
    if (requests.size === 0) this.#requests.delete(sandboxId);
    else this.#requests.set(sandboxId, requests);
    this.#options.onConnections?.(sandboxId, requests.size);
  }

  /** Checks the token. Returns undefined if a valid one is needed and missing. */
  #admit(request: IncomingMessage, address: PortAddress): Admitted | undefined {
    const { sandboxId, port, prefix } = address;
    const { path, token } = splitToken(address.path);
    const isValid = (given: string): boolean => this.#options.tokens.isValid(sandboxId, port, given);
    const bare = { ...address, path };
    if (token !== undefined && isValid(token)) {
      return { address: bare, cookie: portCookie(token, prefix, this.#isSecure) };
    }
    const header = request.headers["x-port-token"];
    const isAdmitted =
      this.#options.isPublic(sandboxId, port) ||
      (typeof header === "string" && isValid(header)) ||
      splitPortCookies(request.headers.cookie ?? "").tokens.some(isValid);
    return isAdmitted ? { address: bare, cookie: undefined } : undefined;
  }

  async #dial({ sandboxId, port }: PortAddress, gone: AbortSignal): Promise<Duplex> {
    const dial: Dial = (...how) => this.#options.dial(sandboxId, ...how);
    const connection = await dialEither(dial, port, firstToAbort(gone, deadlineAfter(dialTimeoutMs)));
    const hangUp = (): void => void connection.destroy();
    gone.addEventListener("abort", hangUp, { once: true });
    connection.once("close", () => gone.removeEventListener("abort", hangUp));
    connection.on("error", () => undefined);
    if (gone.aborted) hangUp();
    return connection;
  }

  async #forward(
    request: IncomingMessage,
    response: ServerResponse,
    { address, cookie }: Admitted,
    { gone: { signal } }: ForwardedRequest,
  ): Promise<void> {
    const connection = await this.#dial(address, signal);
    try {
      const headers = requestHeaders(request, address, this.#isSecure);
      const answer = await this.#ask(connection, request, address, headers, (outgoing) => request.pipe(outgoing));
      if (answer.kind === "switched") throw new Error("The program inside switched protocols without being asked");
      // The unread rest of the body would be taken for the next request.
      await relay(answer.message, response, address, { cookie, isLast: !request.complete });
    } finally {
      connection.destroy();
    }
  }

  async #switch(
    request: IncomingMessage,
    response: ServerResponse,
    { socket, head }: { socket: Duplex; head: Buffer },
    { address, cookie }: Admitted,
    { gone }: ForwardedRequest,
  ): Promise<void> {
    const connection = await this.#dial(address, gone.signal);
    try {
      const upgrade = ["Connection", "Upgrade", "Upgrade", request.headers.upgrade ?? ""];
      const headers = [...requestHeaders(request, address, this.#isSecure), ...upgrade];
      const answer = await this.#ask(connection, request, address, headers, (outgoing) => outgoing.end());
      if (answer.kind === "answered") return await relay(answer.message, response, address, { cookie, isLast: true });
      response.detachSocket(socket as Socket);
      const leave = (): void => gone.abort(closed);
      socket.once("close", leave);
      const { message, head: firstBytes } = answer;
      const protocol = ["Connection", "Upgrade", "Upgrade", message.headers.upgrade ?? ""];
      socket.write(headText(message, [...responseHeaders(message, address), ...protocol]));
      if (firstBytes.byteLength > 0) socket.write(firstBytes);
      if (head.byteLength > 0) connection.write(head);
      await Promise.all([pipeline(connection, socket), pipeline(socket, connection)]).catch(() => undefined);
      socket.removeListener("close", leave);
      socket.destroy();
    } finally {
      connection.destroy();
    }
  }

  #ask(
    connection: Duplex,
    { method }: IncomingMessage,
    { path }: PortAddress,
    headers: RawHeaders,
    sendBody: (outgoing: ReturnType<typeof httpRequest>) => void,
  ): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const outgoing = httpRequest({
        createConnection: () => connection,
        ...(method === undefined ? {} : { method }),
        path,
        headers,
        setHost: false,
      });
      outgoing.on("error", reject);
      outgoing.once("response", (message) => resolve({ kind: "answered", message }));
      outgoing.once("upgrade", (message, _socket, head) => resolve({ kind: "switched", message, head }));
      sendBody(outgoing);
    });
  }
}

type Answer =
  | { kind: "answered"; message: IncomingMessage }
  | { kind: "switched"; message: IncomingMessage; head: Buffer };

const closed = new Error("The connection was closed");

async function relay(
  message: IncomingMessage,
  response: ServerResponse,
  address: PortAddress,
  { cookie, isLast }: { cookie: string | undefined; isLast: boolean },
): Promise<void> {
  const headers = [
    ...responseHeaders(message, address),
    ...(cookie === undefined ? [] : ["Set-Cookie", cookie]),
    ...(isLast ? ["Connection", "close"] : []),
  ];
  response.writeHead(message.statusCode ?? 502, message.statusMessage, headers);
  response.flushHeaders();
  await pipeline(message, response);
}

function headText(message: IncomingMessage, headers: RawHeaders): string {
  const lines = headers.flatMap((name, index) => (index % 2 === 0 ? [`${name}: ${headers[index + 1]}`] : []));
  return `HTTP/1.1 101 ${message.statusMessage ?? "Switching Protocols"}\r\n${lines.join("\r\n")}\r\n\r\n`;
}

/**
 * Returns where a browser is redirected to, so that relative links are right and the token does not stay in its address
 * bar.
 */
function redirectOf(request: IncomingMessage, { address, cookie }: Admitted): string | undefined {
  const isPage = request.method === "GET" && (request.headers.accept ?? "").includes("text/html");
  if (!isPage || request.headers.upgrade !== undefined) return undefined;
  const lacksSlash = address.prefix !== "" && !(request.url ?? "").startsWith(`${address.prefix}/`);
  return lacksSlash || cookie !== undefined ? `${address.prefix}${address.path}` : undefined;
}
