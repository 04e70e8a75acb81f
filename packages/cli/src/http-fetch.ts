import { request as requestPlain, type IncomingMessage } from "node:http";
import { request as requestSecurely } from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { byteStream } from "./transfer/byte-stream.ts";

/** What the SDK asks of an answer. */
type Answer = Pick<Response, "ok" | "status" | "url" | "headers" | "body" | "text" | "arrayBuffer">;

/**
 * `fetch` as far as the SDK uses it. Node's own takes longer to load than a whole command does otherwise. It follows no redirects:
 * the server makes none.
 */
export async function httpFetch(url: string, init: RequestInit = {}): Promise<Answer> {
  init.signal?.throwIfAborted();
  const send = url.startsWith("https:") ? requestSecurely : requestPlain;
  const { body } = init;
  const request = send(url, {
    method: init.method ?? "GET",
    headers: { ...(init.headers as Record<string, string>), ...lengthOf(body) },
    ...(init.signal === undefined || init.signal === null ? {} : { signal: init.signal }),
  });
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    const fail = (cause: Error): void => reject(new TypeError("fetch failed", { cause }));
    request.once("response", resolve);
    // It stays: a connection that breaks later is told to whoever reads the answer.
    request.on("error", fail);
    if (body instanceof ReadableStream) {
      const source = Readable.fromWeb(body).on("error", fail);
      // A server that has heard enough answers and hangs up; what counts is its answer, or that there is none.
      pipeline(source, request).catch(fail);
    } else {
      request.end(body ?? undefined);
    }
  });
  return answerOf(await answered, url);
}

/** A request with a body that is known beforehand says how long it is; others come in chunks. */
function lengthOf(body: RequestInit["body"]): Record<string, string> {
  if (typeof body === "string") return { "content-length": String(Buffer.byteLength(body)) };
  return body instanceof Uint8Array ? { "content-length": String(body.byteLength) } : {};
}

function answerOf(message: IncomingMessage, url: string): Answer {
  const status = message.statusCode ?? 0;
  const body = byteStream(message);
  const whole = async (): Promise<Buffer> => {
    const pieces: Uint8Array[] = [];
    for await (const piece of body as unknown as AsyncIterable<Uint8Array>) pieces.push(piece);
    return Buffer.concat(pieces);
  };
  const headers = { get: (name: string) => valueOf(message, name) } as Headers;
  return {
    ok: status >= 200 && status < 300,
    status,
    url,
    headers,
    body,
    text: async () => (await whole()).toString("utf8"),
    arrayBuffer: async () => new Uint8Array(await whole()).buffer,
  };
}

function valueOf(message: IncomingMessage, name: string): string | null {
  const value = message.headers[name.toLowerCase()];
  return Array.isArray(value) ? value.join(", ") : (value ?? null);
}
