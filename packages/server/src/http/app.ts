import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from "node:http";
import type { AuditEntry, AuditKind } from "@atoll/guard";
import {
  firstToAbort,
  httpHeaders,
  routes,
  SandboxError,
  SandboxId,
  wakesSandbox,
  type Route,
  type RouteName,
} from "@atoll/protocol";
import { fastify, type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import { credentialsOf, type Authenticator } from "../auth/authenticator.ts";
import { assertMay, nameOf, type Principal } from "../auth/principal.ts";
import type { Config } from "../config/config.ts";
import type { Requester } from "../manager/sandbox-settings.ts";
import type { Log } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Span, Tracing } from "../telemetry/tracing.ts";
import { addDocuments } from "./add-documents.ts";
import { allowOrigins } from "./cors.ts";
import { errorBody, errorReply } from "./error-reply.ts";
import type { Call, Handlers } from "./handlers.ts";
import { asked, parsePart, readPart } from "./parse-request.ts";
import {
  aboutRequest,
  auditConfig,
  auditRequest,
  bytesInOf,
  factsFor,
  openFacts,
  type RequestFacts,
} from "./request-audit.ts";
import { revocableBody } from "./revocable-body.ts";
import { sendReply } from "./send-reply.ts";
import { guardAgainstSlowness } from "./slow-requests.ts";
import { whenClosed } from "./when-closed.ts";

/**
 * Handles whole requests before the routes do, such as those to ports of sandboxes. It returns true if it replies to
 * the request.
 */
type RawHandler = (request: IncomingMessage, response: ServerResponse) => boolean;

export interface AppOptions {
  config: Pick<
    Config,
    | "maxBodyBytes"
    | "maxConnections"
    | "headersTimeoutMs"
    | "bodyTimeoutMs"
    | "heartbeatMs"
    | "corsOrigins"
    | "publicMetrics"
  >;
  handlers: Handlers;
  authenticator: Authenticator;
  sandboxes: {
    /** Reads from the store which server has a sandbox that is not here. */
    locate(id: SandboxId): Promise<void>;
    /** Throws, as if the sandbox did not exist, if the principal may not see it. */
    assertSees(principal: Principal, id: SandboxId): void;
    /** Throws while another client holds the sandbox. */
    assertNotHeld(id: SandboxId, by: Requester): void;
    /** Acquires a sandbox that is not here. It is not idle until the returned function is called. */
    acquire(id: SandboxId, signal: AbortSignal): Promise<() => void>;
    isHere(id: SandboxId): boolean;
    /** True if no server has the sandbox at this moment and its local copy is current, so that it can be read here. */
    isSame(id: SandboxId): boolean;
    /** Retains a sandbox that is here: it is not idle until the returned function is called. */
    retain(id: SandboxId): () => void;
    /** Resumes the sandbox if it is paused. */
    wake(id: SandboxId): Promise<void>;
  };
  audit: (entry: AuditEntry, kind: AuditKind) => void;
  log: Log;
  metrics: Metrics;
  tracing: Tracing;
  /** Aborts when the server stops: streams say so and end, and no new requests are taken. */
  stopping: AbortSignal;
  before: readonly RawHandler[];
}

const spanByRequest = new WeakMap<IncomingMessage, Span>();
const maxHeaderBytes = 32 * 1024;

export function buildApp(options: AppOptions): FastifyInstance {
  const { config, log } = options;
  const app = fastify({
    // Requests are logged once, at their end, when everything about them is known.
    logger: false,
    genReqId: requestId,
    bodyLimit: config.maxBodyBytes,
    routerOptions: { maxParamLength: 200, ignoreTrailingSlash: false, caseSensitive: true },
    // Idle connections are closed at once; the others get the time that the server has for its stop.
    forceCloseConnections: "idle",
    frameworkErrors: (error, request, reply) => void answerError(error, request, reply, log),
    serverFactory: (handle) => httpServer(handle, options),
  });
  app.removeContentTypeParser("text/plain");
  allowOrigins(app, config.corsOrigins);
  app.setErrorHandler((error, request, reply) => answerError(error, request, reply, log));
  app.setNotFoundHandler((request, reply) => {
    const error = new SandboxError("not_found", `Cannot ${request.method} this address: there is nothing there`, {
      suggestion: "GET /docs lists what there is.",
    });
    return answerError(error, request, reply, log);
  });
  app.addHook("onRequest", async (request, reply) => {
    openFacts(request);
    reply.header("x-request-id", request.id);
    reply.header("x-content-type-options", "nosniff");
    reply.header("cache-control", "no-store");
  });
  // What a client got an answer about must be in the audit log, also if this process is killed right after.
  app.addHook("onSend", async (request, reply, payload) => {
    const isStream = payload !== null && typeof payload === "object" && !Buffer.isBuffer(payload);
    if (isStream && request.method === "GET") return;
    const outcome = isStream ? "started" : factsFor(request).socket.destroyed ? "client left" : "ok";
    const bytesOut = typeof payload === "string" ? Buffer.byteLength(payload) : 0;
    auditRequest(request, reply, options.audit, { outcome, bytesOut });
  });
  app.addHook("onResponse", async (request, reply) => recordRequest(request, reply, options));
  const names = Object.keys(routes) as RouteName[];
  for (const name of names) if (!takesStream(name)) addRoute(app, name, options);
  // A stream has any content type: even JSON is passed to the handler as it comes.
  app.register(async (streams) => {
    streams.removeAllContentTypeParsers();
    streams.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
    for (const name of names) if (takesStream(name)) addRoute(streams, name, options);
  });
  addDocuments(app);
  return app;
}

function httpServer(
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  options: AppOptions,
): HttpServer {
  const { config, before, tracing } = options;
  const server = createServer(
    {
      headersTimeout: config.headersTimeoutMs,
      // A body of any length may take any time; `guardAgainstSlowness` closes the connection of a client that sends
      // nothing.
      requestTimeout: 0,
      keepAliveTimeout: 65_000,
      connectionsCheckingInterval: Math.min(5_000, config.headersTimeoutMs),
      maxHeaderSize: maxHeaderBytes,
      requireHostHeader: true,
    },
    (request, response) => {
      guardAgainstSlowness(request, response, true, config);
      if (before.some((take) => take(request, response))) return;
      const { method = "", headers } = request;
      const span = tracing.start(method, { kind: "server", headers, attributes: { "http.request.method": method } });
      spanByRequest.set(request, span);
      span.within(() => handle(request, response));
    },
  );
  server.maxConnections = config.maxConnections;
  return server;
}

function addRoute(app: FastifyInstance, name: RouteName, options: AppOptions): void {
  const route: Route = routes[name];
  app.route({
    method: route.method,
    url: route.path,
    exposeHeadRoute: false,
    config: auditConfig(name, route.verb),
    onRequest: async (request, reply) => {
      if (!takesStream(name)) guardAgainstSlowness(request.raw, reply.raw, false, options.config);
      await admit(request, reply, name, route, options);
    },
    handler: async (request, reply) => {
      // The table types each handler; TypeScript cannot follow the union through the loop.
      const handle = options.handlers[name] as (call: unknown) => Promise<unknown>;
      const signal = abortsOnLeave(reply);
      const { principal } = factsFor(request);
      const revoked = principal === undefined ? undefined : options.authenticator.untilRevoked(principal);
      // The key may have been revoked while the body arrived.
      revoked?.throwIfAborted();
      const waiting = firstToAbort(signal, options.stopping, revoked);
      whenClosed(reply.raw, () => waiting[Symbol.dispose]());
      const id = needsSandbox(name, route) ? sandboxIdOf(request) : undefined;
      const isReadable = id !== undefined && isOnlyRead(route) && options.sandboxes.isSame(id);
      if (id !== undefined && !options.sandboxes.isHere(id) && !isReadable) {
        whenClosed(reply.raw, await options.sandboxes.acquire(id, waiting));
      }
      if (id !== undefined && wakesSandbox(route)) await options.sandboxes.wake(id);
      const call = readCall(request, name, route, { signal, waiting, revoked, log: options.log });
      return sendReply(reply, route, await handle(call), {
        signal,
        stopping: options.stopping,
        revoked,
        heartbeatMs: options.config.heartbeatMs,
        onBroken: (error) => options.log.warn({ requestId: request.id, err: error }, "reply interrupted"),
      });
    },
  });
}

function takesStream(name: RouteName): boolean {
  const route: Route = routes[name];
  return typeof route.body === "string";
}

/** A sandbox stays where it is for requests that only read metadata, and for a kill. */
function needsSandbox(name: RouteName, { verb }: Route): boolean {
  return verb !== "public" && verb !== "server" && name !== "getSandbox" && name !== "killSandbox";
}

function isOnlyRead(route: Route): boolean {
  return route.method === "GET" && !wakesSandbox(route);
}

function sandboxIdOf(request: FastifyRequest): SandboxId | undefined {
  return SandboxId.safeParse((request.params as { id?: unknown }).id).data;
}

/** Authenticates and authorizes before the body is read, so that the server reads no body of an unauthorized client. */
async function admit(
  request: FastifyRequest,
  reply: FastifyReply,
  name: RouteName,
  route: Route,
  { authenticator, sandboxes, stopping, config }: AppOptions,
): Promise<void> {
  const { verb } = route;
  const facts = factsFor(request);
  const what = asked(name);
  if (verb === "public" && route.params !== undefined) facts.params = parsePart(route.params, request.params, what);
  if (verb === "public" || (name === "metrics" && config.publicMetrics)) return;
  if (stopping.aborted) {
    throw new SandboxError("unavailable", `Cannot ${what}: the server stops`, { suggestion: "Try again in a moment." });
  }
  if (verb === "server") {
    await authenticator.admitServer(request.headers, { method: request.method, path: request.url }, what);
    if (route.params !== undefined) facts.params = parsePart(route.params, request.params, what);
    return;
  }
  const id = sandboxIdOf(request);
  const credentials = credentialsOf(request.headers);
  // A sandbox's own token is stored with the sandbox, so the sandbox has to be located first. With a key, nothing is
  // located before the key was verified.
  if (id !== undefined && credentials.key === undefined && credentials.sandboxToken !== undefined) {
    await sandboxes.locate(id);
  }
  // Until the client is authenticated, no error says anything about what it asks for.
  facts.principal = authenticator.admit(credentials, what, id);
  assertMay(facts.principal, verb, what, id);
  if (route.params !== undefined) facts.params = parsePart(route.params, request.params, what);
  if (id === undefined) return;
  await sandboxes.locate(id);
  if (name === "killSandbox") return;
  sandboxes.assertSees(facts.principal, id);
  const isAboutHold = name === "holdSandbox" || name === "unholdSandbox";
  if (verb !== "read" && verb !== "admin" && !isAboutHold) sandboxes.assertNotHeld(id, requesterOf(request, facts));
  if (sandboxes.isHere(id)) whenClosed(reply.raw, sandboxes.retain(id));
}

function requesterOf(request: FastifyRequest, { principal }: RequestFacts): Requester {
  const who = principal === undefined ? "nobody" : nameOf(principal);
  return { who, holder: headerOf(request, httpHeaders.holder) };
}

function headerOf(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}

function readCall(
  request: FastifyRequest,
  name: RouteName,
  route: Route,
  { revoked, ...rest }: { signal: AbortSignal; waiting: AbortSignal; revoked: AbortSignal | undefined; log: Log },
): Record<keyof Call<RouteName>, unknown> {
  const facts = factsFor(request);
  const body = takesStream(name) ? revocableBody(request.raw, revoked) : jsonBody(request, route, name);
  return {
    params: facts.params,
    query: readPart(route, route.query, request.query, name),
    body,
    principal: facts.principal,
    requester: requesterOf(request, facts),
    idempotencyKey: headerOf(request, httpHeaders.idempotencyKey),
    lastEventId: headerOf(request, "last-event-id"),
    range: headerOf(request, "range"),
    ifRange: headerOf(request, "if-range"),
    wantsLines: /\bapplication\/x-ndjson\b/i.test(headerOf(request, "accept") ?? ""),
    note: (details: Record<string, unknown>) => {
      facts.notes = { ...facts.notes, ...details };
    },
    requestId: request.id,
    ...rest,
  };
}

function jsonBody(request: FastifyRequest, route: Route, name: RouteName): unknown {
  if (typeof route.body === "string") return undefined;
  // A missing body counts as an empty object: where all fields have defaults, none has to be sent.
  return readPart(route, route.body, request.body === undefined ? {} : request.body, name);
}

function abortsOnLeave(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  const leave = (): void => {
    if (!reply.raw.writableFinished) controller.abort(new Error("The client went away"));
  };
  whenClosed(reply.raw, leave);
  return controller.signal;
}

function answerError(thrown: unknown, request: FastifyRequest, reply: FastifyReply, log: Log): FastifyReply {
  const { status, error, headers = {}, isUnexpected } = errorReply(thrown);
  const facts = factsFor(request);
  facts.errorCode = error.code;
  const { rule, ceiling } = error.details;
  if (error.code === "permission_denied" && rule !== undefined) facts.notes = { ...facts.notes, rule, ceiling };
  // A client that leaves in the middle causes errors in whatever reads from it.
  if (isUnexpected && !facts.socket.destroyed) log.error({ requestId: request.id, err: thrown }, "request failed");
  const { retryAfterMs } = error.details;
  if (typeof retryAfterMs === "number") reply.header("retry-after", String(Math.ceil(retryAfterMs / 1000)));
  // The rest of the body would be taken for the next request.
  if (!request.raw.complete) reply.header("connection", "close");
  return reply.code(status).headers(headers).type("application/json; charset=utf-8").send(errorBody(error, request.id));
}

/**
 * Logs one line per request, with everything that is useful and nothing that is secret: no query, no headers, no body.
 */
function recordRequest(request: FastifyRequest, reply: FastifyReply, options: AppOptions): void {
  const { metrics, log } = options;
  const facts = factsFor(request);
  const { url: route = "none" } = request.routeOptions;
  const { method, id: requestId } = request;
  const status = reply.statusCode;
  const durationMs = Math.round(reply.elapsedTime * 10) / 10;
  const who = facts.principal === undefined ? undefined : nameOf(facts.principal);
  const bytesIn = bytesInOf(request, facts);
  const bytesOut = facts.socket.bytesWritten - facts.bytesWritten;
  const about = aboutRequest(facts);
  metrics.request({ method, route, status, seconds: reply.elapsedTime / 1000 });
  const remote = request.ip;
  const error = facts.errorCode;
  const traceId = endSpan(request, { route, status, error, about });
  log.info(
    { requestId, traceId, method, route, ...about, status, durationMs, bytesIn, bytesOut, who, error, remote },
    "request answered",
  );
  auditRequest(request, reply, options.audit, { outcome: reply.raw.writableFinished ? "ok" : "client left", bytesOut });
}

function endSpan(
  request: FastifyRequest,
  { route, status, error, about }: { route: string; status: number; error: string | undefined; about: object },
): string | undefined {
  const span = spanByRequest.get(request.raw);
  if (span === undefined) return undefined;
  const sandboxId = "id" in about ? String(about.id) : "sandboxId" in about ? String(about.sandboxId) : undefined;
  span.rename(`${request.method} ${route}`);
  span.set({
    "http.route": route,
    "http.response.status_code": status,
    "atoll.request.id": request.id,
    "atoll.sandbox.id": sandboxId,
    "error.type": error,
  });
  // A mistake of the client is not a failure of this server.
  if (status >= 500) span.fail(error ?? String(status));
  span.end();
  return span.traceId;
}

/** Keeps the id that the client chose if it is harmless, so that both logs have the same. */
function requestId(request: IncomingMessage): string {
  const given = request.headers["x-request-id"];
  return typeof given === "string" && /^[\w.-]{1,64}$/.test(given) ? given : randomUUID();
}
