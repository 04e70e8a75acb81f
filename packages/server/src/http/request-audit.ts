import type { Socket } from "node:net";
import { redact, type AuditEntry, type AuditKind } from "@atoll/guard";
import type { Route, RouteName } from "@atoll/protocol";
import type { FastifyContextConfig, FastifyReply, FastifyRequest } from "fastify";
import { nameOf, type Principal } from "../auth/principal.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** The name of the route and what its requests are, if they go into the audit log. */
    audited?: { what: RouteName; kind: "change" | "read" };
  }
}

/** What is known of a request while it lasts. */
export interface RequestFacts {
  principal?: Principal;
  params?: unknown;
  errorCode?: string;
  notes?: Record<string, unknown>;
  /** Whether its result is in the audit log already. */
  isRecorded?: true;
  /** Node takes the socket from a request whose body was destroyed, while its answer is still sent. */
  socket: Socket;
  /** The counters of the socket when the request began: the bytes of the request itself are the difference. */
  bytesRead: number;
  bytesWritten: number;
}

const factsByRequest = new WeakMap<FastifyRequest, RequestFacts>();

type AuditRequest = (entry: AuditEntry, kind: AuditKind) => void;

/** Begins to count what the request sends and gets. */
export function openFacts(request: FastifyRequest): RequestFacts {
  const { socket } = request.raw;
  const facts = { socket, bytesRead: socket.bytesRead, bytesWritten: socket.bytesWritten };
  factsByRequest.set(request, facts);
  return facts;
}

export function factsFor(request: FastifyRequest): RequestFacts {
  return factsByRequest.get(request) ?? openFacts(request);
}

/** Requests that only read are recorded where the level is `full`. */
export function auditConfig(what: RouteName, verb: Route["verb"]): Pick<FastifyContextConfig, "audited"> {
  if (verb === "public" || verb === "server" || verb === "metrics") return {};
  return { audited: { what, kind: verb === "read" || verb === "events" ? "read" : "change" } };
}

/** Writes the line of a request, once; before it, a stream has one that says that it started. */
export function auditRequest(
  request: FastifyRequest,
  reply: FastifyReply,
  audit: AuditRequest,
  { outcome, bytesOut }: { outcome: string; bytesOut: number },
): void {
  const facts = factsFor(request);
  const { audited } = request.routeOptions.config;
  if (audited === undefined || facts.isRecorded === true) return;
  if (outcome !== "started") facts.isRecorded = true;
  const about = aboutRequest(facts);
  const error = facts.errorCode;
  const entry = {
    who: facts.principal === undefined ? "nobody" : nameOf(facts.principal),
    what: audited.what,
    sandboxId: "id" in about ? String(about["id"]) : undefined,
    result: error ?? outcome,
    bytesIn: bytesInOf(request, facts),
    bytesOut,
    durationMs: Math.round(reply.elapsedTime * 10) / 10,
    requestId: request.id,
    details: about,
  };
  audit(entry, isRefusal(error) ? "security" : audited.kind);
}

function isRefusal(error: string | undefined): boolean {
  return error === "permission_denied" || error === "unauthenticated";
}

export function aboutRequest({ params, notes }: RequestFacts): Record<string, unknown> {
  return redact({ ...(params as object | undefined), ...notes }) as Record<string, unknown>;
}

export function bytesInOf({ headers }: FastifyRequest, facts: RequestFacts): number {
  // A short body arrives together with its headers, before the socket's counter can be read.
  return Math.max(facts.socket.bytesRead - facts.bytesRead, Number(headers["content-length"] ?? 0));
}
