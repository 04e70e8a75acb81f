import type { RouteName, routes, WireError } from "@atoll/protocol";
import type { z } from "zod";
import type { Principal } from "../auth/principal.ts";
import type { Requester } from "../manager/sandbox-settings.ts";
import type { Log } from "../telemetry/log.ts";

type Routes = typeof routes;
type Parsed<R, Part extends string> = R extends Record<Part, infer S extends z.ZodType> ? z.output<S> : undefined;
type Body<R> = R extends { body: "bytes" | "tar" } ? AsyncIterable<Buffer> : Parsed<R, "body">;

/** One request, after it was validated. */
export interface Call<N extends RouteName> {
  params: Parsed<Routes[N], "params">;
  query: Parsed<Routes[N], "query">;
  /** A stream fails when the key of the client is revoked. */
  body: Body<Routes[N]>;
  /** The authenticated client; absent for public routes. */
  principal: Principal | undefined;
  /** The client for which a held sandbox is checked. */
  requester: Requester;
  idempotencyKey: string | undefined;
  lastEventId: string | undefined;
  /** The headers `Range` and `If-Range`. */
  range: string | undefined;
  ifRange: string | undefined;
  /** True for `Accept: application/x-ndjson`. */
  wantsLines: boolean;
  requestId: string;
  log: Log;
  /** Adds details to the audit line of this request. */
  note: (details: Record<string, unknown>) => void;
  /** Aborts when the client leaves. What the request started goes on; what only waits for this client stops. */
  signal: AbortSignal;
  /** Aborts also when the server stops. It is for waits that would delay the stop. */
  waiting: AbortSignal;
}

/** A stream of bytes of any length. The next piece is requested when the client has taken the one before. */
export class ByteStream {
  readonly pieces: AsyncIterable<Uint8Array>;
  readonly headers: Record<string, string>;
  readonly status: number;

  constructor(pieces: AsyncIterable<Uint8Array>, headers: Record<string, string> = {}, status = 200) {
    this.pieces = pieces;
    this.headers = headers;
    this.status = status;
  }
}

/**
 * A stream with one JSON value per line. It sends `heartbeat` when nothing else happens, `shutdown` when the server
 * stops and `refused` when the client may not read on.
 */
export class LineStream<T = unknown> {
  readonly lines: AsyncIterable<T>;
  readonly heartbeat: () => T;
  readonly shutdown: () => T;
  readonly refused: (error: WireError) => T;

  constructor(lines: AsyncIterable<T>, signs: Pick<LineStream<T>, "heartbeat" | "shutdown" | "refused">) {
    this.lines = lines;
    this.heartbeat = signs.heartbeat;
    this.shutdown = signs.shutdown;
    this.refused = signs.refused;
  }
}

/** A stream of events. A `passed` marker is not an event but a cursor to continue from. */
export class EventStream {
  readonly events: AsyncIterable<{ cursor: number; type: string }>;

  constructor(events: AsyncIterable<{ cursor: number; type: string }>) {
    this.events = events;
  }
}

/** A reply whose status depends on its content. */
export class WithStatus<T> {
  readonly status: number;
  readonly value: T;

  constructor(status: number, value: T) {
    this.status = status;
    this.value = value;
  }
}

type ReplyOf<S> = S extends z.ZodType
  ? z.output<S> | LineStream | WithStatus<z.output<S>>
  : S extends "bytes" | "tar"
    ? ByteStream
    : S extends "ndjson"
      ? LineStream
      : S extends "sse"
        ? EventStream
        : S extends "text"
          ? { contentType: string; text: string }
          : void;
type Reply<N extends RouteName> = ReplyOf<Routes[N]["reply"]>;

type Handler<N extends RouteName> = (call: Call<N>) => Promise<Reply<N>> | Reply<N>;

/** A handler for each route of the contract: a route without one does not compile. */
export type Handlers = { [N in RouteName]: Handler<N> };
