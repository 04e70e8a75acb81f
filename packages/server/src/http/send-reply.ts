import { Readable } from "node:stream";
import type { Route, WireError } from "@atoll/protocol";
import type { FastifyReply } from "fastify";
import { errorReply } from "./error-reply.ts";
import { ByteStream, EventStream, LineStream, WithStatus } from "./handlers.ts";
import { keepAlive } from "./keep-alive-lines.ts";

export interface StreamTiming {
  signal: AbortSignal;
  stopping: AbortSignal;
  /** Aborts when the client may not read on. */
  revoked: AbortSignal | undefined;
  heartbeatMs: number;
  /** Called when a stream fails. The status has been sent already, so the connection is closed and the error logged. */
  onBroken: (error: unknown) => void;
}

/**
 * Sends what a handler returned, in the form that the contract names. The client pulls streams, so none is buffered
 * here.
 */
export function sendReply(reply: FastifyReply, route: Route, value: unknown, timing: StreamTiming): FastifyReply {
  if (value instanceof WithStatus) return json(reply, value.status, value.value);
  if (value instanceof LineStream) {
    const { heartbeat, shutdown } = value;
    const refused = (reason: unknown): unknown => value.refused(wireError(reason));
    const lines = keepAlive(value.lines, { ...timing, heartbeat, shutdown, refused });
    const texts = asText(lines, (line) => `${JSON.stringify(line)}\n`);
    return stream(reply, "application/x-ndjson; charset=utf-8", texts, timing);
  }
  if (value instanceof EventStream) {
    return stream(reply, "text/event-stream; charset=utf-8", serverSentEvents(value, timing), timing);
  }
  if (value instanceof ByteStream) {
    const type = route.reply === "tar" ? "application/x-tar" : "application/octet-stream";
    for (const [name, text] of Object.entries(value.headers)) reply.header(name, text);
    return stream(reply.code(value.status), type, until(timing.revoked, value.pieces), timing);
  }
  if (route.reply === "empty") return reply.code(route.status ?? 204).send();
  if (route.reply === "text") {
    const { contentType, text } = value as { contentType: string; text: string };
    return reply.type(contentType).send(text);
  }
  return json(reply, route.status ?? 200, value);
}

function json(reply: FastifyReply, status: number, value: unknown): FastifyReply {
  return reply.code(status).type("application/json; charset=utf-8").send(JSON.stringify(value));
}

function stream(
  reply: FastifyReply,
  type: string,
  pieces: AsyncIterable<Uint8Array | string>,
  { signal, onBroken }: StreamTiming,
): FastifyReply {
  const readable = Readable.from(pieces, { objectMode: false, highWaterMark: 64 * 1024 });
  readable.once("error", (error) => {
    if (!signal.aborted) onBroken(error);
  });
  // Proxies that buffer replies would make a stream useless.
  return reply.header("x-accel-buffering", "no").type(type).send(readable);
}

/** Ends a stream of bytes when `signal` aborts. It has no place for an error, so it fails. */
async function* until(
  signal: AbortSignal | undefined,
  pieces: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, void> {
  for await (const piece of pieces) {
    signal?.throwIfAborted();
    yield piece;
  }
}

function wireError(reason: unknown): WireError {
  return errorReply(reason).error.toJSON() as WireError;
}

async function* asText<T>(values: AsyncIterable<T>, text: (value: T) => string): AsyncGenerator<string, void, void> {
  for await (const value of values) yield text(value);
}

async function* serverSentEvents({ events }: EventStream, timing: StreamTiming): AsyncGenerator<string, void, void> {
  const texts = asText(events, (event) => {
    const id = `id: ${event.cursor}\n`;
    // Without data no event is dispatched, but the client remembers the id.
    return event.type === "passed" ? `${id}\n` : `${id}event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
  });
  yield "retry: 1000\n\n";
  yield* keepAlive(texts, {
    ...timing,
    heartbeat: () => ": heartbeat\n\n",
    shutdown: () => "event: shutdown\ndata: {}\n\n",
    refused: (reason) => `event: refused\ndata: ${JSON.stringify({ error: wireError(reason) })}\n\n`,
  });
}
