import { httpHeaders, routes, SandboxError, type Route, type RouteName } from "@atoll/protocol";
import { z } from "zod";
import type { Connection } from "../connection-options.ts";
import { connectionError, errorFromWire, isRefused } from "../errors.ts";
import { backoffMs, later, pause } from "./backoff.ts";
import { createOrCleanup } from "./create-or-cleanup.ts";
import { readText, readWhole, type Answer, type ByteReader, type ByteSource, type HttpRequest } from "./exchange.ts";
import { idleTimeout } from "./idle-timeout.ts";
import { readReply } from "./lenient.ts";
import { randomKey } from "./random-key.ts";

type Part<Name extends RouteName, Key extends "params" | "query" | "body"> =
  (typeof routes)[Name] extends Record<Key, infer Schema extends z.ZodType> ? z.input<Schema> : undefined;

export interface CallInput<Name extends RouteName> {
  params?: Part<Name, "params">;
  query?: Part<Name, "query">;
  body?: Part<Name, "body">;
  /** The body of a route that takes bytes. */
  bytes?: ByteSource;
  /** What the answer may be, where a route has several forms. */
  accept?: string;
  /** Makes a route that is idempotent so; one is made up when absent. */
  idempotencyKey?: string;
  /** Asking twice does the same as asking once, though the route does not say so. */
  isRepeatable?: true;
  /** Instead of the connection's; `undefined` is no limit. Of a stream it limits the time until the answer begins. */
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

export type Reply<Name extends RouteName> = (typeof routes)[Name]["reply"] extends infer Schema extends z.ZodType
  ? z.output<Schema>
  : undefined;

/** A server that never answered is likely not there: so often, and at once, is it asked again. */
const triesBeforeFirstContact = 3;

/**
 * How long a server that says nothing is asked to begin what happens once, however often it is asked: a sandbox may
 * have to wake for it.
 */
const patienceMs = 10 * 60_000;

/** How much longer than its caller a request is waited for whose answer has to be undone. */
const lateMs = 2 * 60_000;

/** Requests by the name of their route. */
export class Http {
  readonly #connection: Connection;
  #hasAnswered = false;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** A request whose answer is JSON, or nothing. */
  async call<Name extends RouteName>(name: Name, input: CallInput<Name> = {}): Promise<Reply<Name>> {
    const route: Route = routes[name];
    const timeoutMs = this.#timeoutMs(input);
    const late = new AbortController();
    const settle = timeoutMs === undefined ? undefined : later(timeoutMs, () => late.abort());
    try {
      const text = await this.#send(route, input, { signal: anyOf(input.signal, late.signal), read: readText });
      if (!(route.reply instanceof z.ZodType)) return undefined as Reply<Name>;
      const from = `${this.#connection.baseUrl}${route.path}`;
      return readReply(route.reply, parseJson(text, from), from) as Reply<Name>;
    } catch (error) {
      if (late.signal.aborted && input.signal?.aborted !== true) {
        throw noAnswer(route, timeoutMs, error);
      }
      throw this.#explained(error, input.signal);
    } finally {
      settle?.();
    }
  }

  /**
   * A request for what lives on at the server. Its time limit is the caller's: what an answer after it tells of is
   * undone.
   */
  async make<Name extends RouteName>(
    name: Name,
    input: CallInput<Name>,
    undo: (made: Reply<Name>) => Promise<unknown>,
  ): Promise<Reply<Name>> {
    const timeoutMs = this.#timeoutMs(input);
    const longer = { timeoutMs: timeoutMs === undefined ? undefined : timeoutMs + lateMs, signal: undefined };
    const late = new AbortController();
    const giveUp = (): void => late.abort(noAnswer(routes[name], timeoutMs));
    const settle = timeoutMs === undefined ? undefined : later(timeoutMs, giveUp);
    try {
      return await createOrCleanup(
        () => this.call(name, { ...input, ...longer }),
        undo,
        anyOf(input.signal, late.signal),
      );
    } finally {
      settle?.();
    }
  }

  /** A request whose answer is bytes, all of them. One that stops coming is asked for again. */
  async bytes<Name extends RouteName>(name: Name, input: CallInput<Name> = {}): Promise<Uint8Array> {
    const silenceMs = this.#timeoutMs(input);
    return this.#begin(name, input, (body) => readWhole(silenceMs === undefined ? body : idleTimeout(body, silenceMs)));
  }

  /** A request whose answer is a stream; errors of the connection in it are explained. */
  async stream<Name extends RouteName>(name: Name, input: CallInput<Name> = {}): Promise<ReadableStream<Uint8Array>> {
    return this.#explainedStream(await this.body(name, input), input.signal);
  }

  /** A request whose answer is read by the caller, piece by piece. */
  async body<Name extends RouteName>(name: Name, input: CallInput<Name> = {}): Promise<ByteReader> {
    return this.#begin(name, input, async (body) => body);
  }

  async #begin<Name extends RouteName, Value>(
    name: Name,
    input: CallInput<Name>,
    read: (body: ByteReader) => Promise<Value>,
  ): Promise<Value> {
    const headMs = this.#timeoutMs(input);
    try {
      return await this.#send(routes[name], input, { signal: input.signal, headMs, read });
    } catch (error) {
      throw this.#explained(error, input.signal);
    }
  }

  #timeoutMs<Name extends RouteName>(input: CallInput<Name>): number | undefined {
    return "timeoutMs" in input ? input.timeoutMs : this.#connection.requestTimeoutMs;
  }

  async #send<Name extends RouteName, Value>(route: Route, input: CallInput<Name>, way: Way<Value>): Promise<Value> {
    const { signal } = way;
    const { params, query } = input as { params?: object; query?: object };
    const url = urlOf(this.#connection.baseUrl, route.path, params, query);
    const body = bodyOf(route, input);
    const request: HttpRequest = {
      method: route.method,
      headers: this.#headers(route, input),
      ...(signal === undefined ? {} : { signal }),
      ...(body === undefined ? {} : { body }),
    };
    const canRepeat = !(body instanceof ReadableStream);
    if (body instanceof ReadableStream && body.locked) {
      throw new SandboxError("invalid_argument", "Cannot send this stream: somebody else reads it", {
        suggestion: "Give a stream that nobody has begun to read",
      });
    }
    const isSafe = canRepeat && (route.method === "GET" || route.isIdempotent === true || input.isRepeatable === true);
    const startedAtMs = Date.now();
    for (let attempt = 0; ; attempt += 1) {
      const answer = await this.#attempt(url, request, way);
      if ("value" in answer) return answer.value;
      if ("error" in answer) {
        signal?.throwIfAborted();
        // What is wrong with the request itself, no other attempt can mend.
        if (answer.error instanceof SandboxError) throw answer.error;
        const isLate = answer.error === tooLate;
        const isOver = this.#isTooLate(attempt, startedAtMs, isLate && route.isIdempotent === true);
        if (!(isSafe || (canRepeat && isRefused(answer.error))) || isOver) {
          throw isLate ? noAnswer(route, way.headMs) : answer.error;
        }
        await pause(backoffMs(attempt), signal);
        continue;
      }
      const { refusal } = answer;
      const waitMs = retryAfterMs(refusal) ?? (isSafe && isFromBetween(refusal) ? backoffMs(attempt) : undefined);
      if (waitMs === undefined || !canRepeat || Date.now() + waitMs - startedAtMs > this.#connection.reconnectForMs) {
        throw await errorOf(refusal);
      }
      await refusal.body.cancel();
      await pause(waitMs, signal);
    }
  }

  async #attempt<Value>(
    url: string,
    request: HttpRequest,
    { headMs, read }: Way<Value>,
  ): Promise<{ value: Value } | { refusal: Answer } | { error: unknown }> {
    const stop = new AbortController();
    const settle = headMs === undefined ? undefined : later(headMs, () => stop.abort());
    try {
      const signal = anyOf(request.signal, headMs === undefined ? undefined : stop.signal);
      const answer = await this.#connection.exchange(url, signal === undefined ? request : { ...request, signal });
      settle?.();
      this.#hasAnswered = true;
      const isGood = answer.status >= 200 && answer.status < 300;
      return isGood ? { value: await read(answer.body) } : { refusal: answer };
    } catch (error) {
      return { error: stop.signal.aborted ? tooLate : error };
    } finally {
      settle?.();
    }
  }

  #isTooLate(attempt: number, startedAtMs: number, isPatient: boolean): boolean {
    const passedMs = Date.now() - startedAtMs;
    if (isPatient) return passedMs > patienceMs;
    if (!this.#hasAnswered) return attempt + 1 >= triesBeforeFirstContact;
    return passedMs > this.#connection.reconnectForMs;
  }

  #headers<Name extends RouteName>(route: Route, input: CallInput<Name>): Record<string, string> {
    const { apiKey, sandboxToken, holder } = this.#connection;
    const headers: Record<string, string> = {};
    if (apiKey !== undefined) headers[httpHeaders.authorization] = `Bearer ${apiKey}`;
    if (sandboxToken !== undefined) headers[httpHeaders.sandboxToken] = sandboxToken;
    if (holder !== undefined) headers[httpHeaders.holder] = holder;
    if (route.isIdempotent === true) headers[httpHeaders.idempotencyKey] = input.idempotencyKey ?? randomKey();
    if (input.accept !== undefined) headers["accept"] = input.accept;
    if (route.body === "bytes") headers["content-type"] = "application/octet-stream";
    else if (route.body === "tar") headers["content-type"] = "application/x-tar";
    else if (route.body !== undefined) headers["content-type"] = "application/json";
    return headers;
  }

  #explainedStream(body: ByteReader, signal: AbortSignal | undefined): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        try {
          const piece = await body.read();
          if (piece === undefined) controller.close();
          else controller.enqueue(piece);
        } catch (error) {
          controller.error(this.#explained(error, signal));
        }
      },
      cancel: (reason) => body.cancel(reason),
    });
  }

  /** Errors of the server and aborts as they are; everything else is the connection's. */
  #explained(error: unknown, signal: AbortSignal | undefined): unknown {
    if (error instanceof SandboxError) return error;
    if (signal?.aborted === true) return signal.reason;
    return connectionError(this.#connection.baseUrl, error);
  }
}

interface Way<Value> {
  signal: AbortSignal | undefined;
  /** How long an attempt may wait for the beginning of its answer. */
  headMs?: number | undefined;
  /** Part of an attempt: an answer that breaks in its middle is no answer. */
  read: (body: ByteReader) => Promise<Value>;
}

/** The server has not begun to answer in time. */
const tooLate = Symbol("too late");

function noAnswer(route: Route, timeoutMs: number | undefined, cause?: unknown): SandboxError {
  return new SandboxError("timed_out", `Cannot ${route.method} ${route.path}: no answer in ${timeoutMs} ms`, { cause });
}

function anyOf(...signals: (AbortSignal | undefined)[]): AbortSignal | undefined {
  const present = signals.filter((signal) => signal !== undefined);
  return present.length < 2 ? present[0] : AbortSignal.any(present);
}

function urlOf(baseUrl: string, path: string, params: object | undefined, query: object | undefined): string {
  const values = new Map<string, unknown>(Object.entries(params ?? {}));
  const filled = path.replaceAll(/:(\w+)/g, (_, name: string) => encodeURIComponent(String(values.get(name))));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) if (value !== undefined) search.set(name, String(value));
  return `${baseUrl}${filled}${search.size === 0 ? "" : `?${search.toString()}`}`;
}

function bodyOf<Name extends RouteName>(route: Route, input: CallInput<Name>): ByteSource | undefined {
  if (route.body === undefined) return undefined;
  return typeof route.body === "string" ? (input.bytes ?? "") : JSON.stringify(input.body ?? {});
}

function retryAfterMs({ status, header }: Answer): number | undefined {
  if (status !== 429 && status !== 503) return undefined;
  const value = header("retry-after");
  if (value === undefined) return undefined;
  const seconds = Number(value);
  const ms = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(value) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

/** Something between client and server answered for it, say a proxy while the server restarts. */
function isFromBetween({ status, header }: Answer): boolean {
  const isOurs = header("content-type")?.includes("json") === true;
  return !isOurs && [502, 503, 504].includes(status);
}

async function errorOf({ status, url, body }: Answer): Promise<SandboxError> {
  const text = await readText(body);
  let wire: unknown;
  try {
    wire = (JSON.parse(text) as { error?: unknown }).error;
  } catch {
    const code = status >= 502 && status <= 504 ? "unavailable" : "internal";
    return new SandboxError(code, `Cannot use the answer of ${url}: status ${status} without an error of Atoll`, {
      suggestion: "Check that baseUrl leads to an Atoll server",
      details: { status, body: text.slice(0, 500) },
    });
  }
  return errorFromWire(wire, url);
}

function parseJson(text: string, url: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new SandboxError("internal", `Cannot use the answer of ${url}: it is not JSON`, {
      suggestion: "Check that baseUrl leads to an Atoll server",
      cause,
    });
  }
}
