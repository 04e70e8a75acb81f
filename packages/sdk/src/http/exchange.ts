/** The body of a request. */
export type ByteSource = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

export interface HttpRequest {
  method: string;
  headers: Record<string, string>;
  body?: ByteSource;
  signal?: AbortSignal;
}

/** Reads a body no faster than the caller asks: a piece or two are in memory. */
export interface ByteReader {
  /** Resolves with the next piece, or with `undefined` at the end. Rejects when the body breaks off. */
  read(): Promise<Uint8Array | undefined>;
  /** Stops reading, and closes the connection if there is more to come. */
  cancel(reason?: unknown): Promise<void>;
}

export interface Answer {
  status: number;
  url: string;
  /** Returns the value of a header, whatever its case. */
  header: (name: string) => string | undefined;
  body: ByteReader;
}

/**
 * Sends one request and resolves with its answer. Rejects with an error whose `cause` is the failure of the connection.
 */
export type Exchange = (url: string, request: HttpRequest) => Promise<Answer>;

/** Uses a `fetch`: that of browsers, or one that a user provides. */
export function exchangeOver(fetch: typeof globalThis.fetch): Exchange {
  return async (url, { body, ...request }) => {
    const init: RequestInit & { duplex?: "half" } = {
      ...request,
      ...(body === undefined ? {} : { body: body as Exclude<RequestInit["body"], undefined> }),
      ...(body instanceof ReadableStream ? { duplex: "half" } : {}),
    };
    const response = await fetch(url, init);
    return {
      status: response.status,
      url: response.url,
      header: (name) => response.headers.get(name) ?? undefined,
      body: response.body === null ? nothing : readerOf(response.body),
    };
  };
}

const nothing: ByteReader = { read: async () => undefined, cancel: async () => undefined };

function readerOf(body: ReadableStream<Uint8Array>): ByteReader {
  const reader = body.getReader();
  return {
    read: async () => {
      const { done, value } = await reader.read();
      return done ? undefined : value;
    },
    cancel: (reason) => reader.cancel(reason),
  };
}

/** Reads the rest of a body. */
export async function readWhole(body: ByteReader): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for (let piece = await body.read(); piece !== undefined; piece = await body.read()) {
    pieces.push(piece);
    length += piece.byteLength;
  }
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.byteLength;
  }
  return whole;
}

export async function readText(body: ByteReader): Promise<string> {
  return new TextDecoder().decode(await readWhole(body));
}
