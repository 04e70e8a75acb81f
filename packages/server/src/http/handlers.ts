import type { RouteName, routes, WireError } from "@atoll/protocol";
import type { z } from "zod";
import type { Principal } from "../auth/principal.ts";
import type { Claimant } from "../manager/sandbox-settings.ts";
import type { Log } from "../telemetry/log.ts";

type Routes = typeof routes;
type Parsed<R, Part extends string> = R extends Record<Part, infer S extends z.ZodType> ? z.output<S> : undefined;
type Body<R> = R extends { body: "bytes" | "tar" } ? AsyncIterable<Buffer> : Parsed<R, "body">;

/** One request, after the contract has read it. */
export interface Call<N extends RouteName> {
  params: Parsed<Routes[N], "params">;
  query: Parsed<Routes[N], "query">;
  /** A stream fails when the key of the client is revoked. */
  body: Body<Routes[N]>;
  /** Absent where nobody is asked who they are. */
  principal: Principal | undefined;
  /** Who asks, where others may hold the sandbox. */
  claimant: Claimant;
  idempotencyKey: string | undefined;
  lastEventId: string | undefined;
  /** As the headers of these names. */
  range: string | undefined;
  ifRange: string | undefined;
  /** `Accept: application/x-ndjson`. */
  wantsLines: boolean;
  requestId: string;
  log: Log;
  /** Goes into the audit line of this request. */
  note: (details: Record<string, unknown>) => void;
  /** Aborts when the client goes away. What was started goes on; what only waited for this client stops. */
  signal: AbortSignal;
  /** Aborts also when the server stops: for waits that would keep it. */
  waiting: AbortSignal;
}

/** Bytes of any length; the iterator is asked for the next piece when the client has taken the one before. */
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
 * One JSON value per line, with `heartbeat` when nothing else is to say, `shutdown` when the server goes and `refused`
 * when the client may not read on.
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

/** `passed` is no event but a place to come back to. */
export class EventStream {
  readonly events: AsyncIterable<{ cursor: number; type: string }>;

  constructor(events: AsyncIterable<{ cursor: number; type: string }>) {
    this.events = events;
  }
}

/** An answer whose status depends on what is so. */
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

/** A row of the contract without a handler does not compile. */
export type Handlers = { [N in RouteName]: Handler<N> };
