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
  /** The form of the answer, where a route has several. */
  accept?: string;
  /** The key that makes a request idempotent; a random one when absent. */
  idempotencyKey?: string;
  /** Repeating the request has no further effect, although the route does not declare that. */
  isRepeatable?: true;
  /**
   * Replaces the time limit of the connection; `undefined` is no limit. For a stream it limits the time until the
   * answer begins.
   */
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

export type Reply<Name extends RouteName> = (typeof routes)[Name]["reply"] extends infer Schema extends z.ZodType
  ? z.output<Schema>
  : undefined;

/** A server that never answered is probably not there, so it is tried only this often, without a pause. */
const triesBeforeFirstContact = 3;

/**
 * How long a request that can be repeated is repeated while the server does not begin to answer: it may have to resume
 * a sandbox first.
 */
const patienceMs = 10 * 60_000;

/** How much longer than its caller waits we wait for an answer that has to be undone. */
const lateMs = 2 * 60_000;

/** Sends requests by the name of their route. */
export class Http {
  readonly #connection: Connection;
  #hasAnswered = false;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Sends a request whose answer is JSON, or empty. */
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
   * Sends a request that creates something on the server. The time limit is the caller's: what a later answer reports
   * is removed.
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

  /** Sends a request whose answer is bytes, and reads all of them. If they stop coming, the request is repeated. */
  async bytes<Name extends RouteName>(name: Name, input: CallInput<Name> = {}): Promise<Uint8Array> {
    const silenceMs = this.#timeoutMs(input);
    return this.#begin(name, input, (body) => readWhole(silenceMs === undefined ? body : idleTimeout(body, silenceMs)));
  }

  /** Sends a request whose answer is a stream; errors of the connection in it are explained. */
  async stream<Name extends RouteName>(name: Name, input: CallInput<Name> = {}): Promise<ReadableStream<Uint8Array>> {
    return this.#explainedStream(await this.body(name, input), input.signal);
  }

  /** Sends a request whose answer the caller reads, piece by piece. */
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
      throw new SandboxError("invalid_argument", "Cannot send this stream: it has another reader", {
        suggestion: "Give a stream that has not been read yet",
      });
    }
    const isSafe = canRepeat && (route.method === "GET" || route.isIdempotent === true || input.isRepeatable === true);
    const startedAtMs = Date.now();
    for (let attempt = 0; ; attempt += 1) {
      const answer = await this.#attempt(url, request, way);
      if ("value" in answer) return answer.value;
      if ("error" in answer) {
        signal?.throwIfAborted();
        // If the request itself is invalid, another attempt would fail too.
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

  /** Returns errors of the server and aborts unchanged; everything else is an error of the connection. */
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
  /** Reads the answer as a part of the attempt: an answer that breaks off counts as none. */
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

/** Whether something between client and server gave the answer, say a proxy while the server restarts. */
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
      suggestion: "Check that baseUrl is the address of an Atoll server",
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
      suggestion: "Check that baseUrl is the address of an Atoll server",
      cause,
    });
  }
}
