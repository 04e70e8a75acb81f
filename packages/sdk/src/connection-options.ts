import { environment } from "#environment";
import type { WebSocketLike } from "./environment/environment.ts";
import { exchangeOver, type Exchange } from "./http/exchange.ts";

/** Where the server is and how to speak with it. Every call that needs no `Atoll` takes these. */
export interface ConnectionOptions {
  /** An API key; `ATOLL_API_KEY` in Node when absent. */
  apiKey?: string | undefined;
  /** A sandbox's own token, which works for that sandbox without a key. */
  sandboxToken?: string | undefined;
  /** `ATOLL_API_URL` in Node when absent, else `http://127.0.0.1:4600`. */
  baseUrl?: string | undefined;
  /** The name under which this client holds sandboxes. */
  holder?: string | undefined;
  /** How long one request may take; of a stream or a large file, how long nothing may come before it begins. */
  requestTimeoutMs?: number | undefined;
  /** How long a server that has answered before is waited for when it is gone. */
  reconnectForMs?: number | undefined;
  /** Instead of the runtime's own way to send requests. */
  fetch?: typeof fetch | undefined;
  /** Instead of the runtime's own. */
  webSocket?: ((url: string) => WebSocketLike | Promise<WebSocketLike>) | undefined;
}

export interface Connection {
  apiKey: string | undefined;
  sandboxToken: string | undefined;
  holder: string | undefined;
  /** Without a slash at its end. */
  baseUrl: string;
  requestTimeoutMs: number;
  reconnectForMs: number;
  exchange: Exchange;
  openWebSocket: (url: string) => Promise<WebSocketLike>;
}

export const defaultBaseUrl = "http://127.0.0.1:4600";

export function resolveConnection(options: ConnectionOptions): Connection {
  const { webSocket } = options;
  return {
    // A token is chosen for what it can do; a key from the environment beside it would widen that.
    apiKey: options.apiKey ?? (options.sandboxToken === undefined ? readVariable("ATOLL_API_KEY") : undefined),
    sandboxToken: options.sandboxToken,
    holder: options.holder,
    baseUrl: (options.baseUrl ?? readVariable("ATOLL_API_URL") ?? defaultBaseUrl).replace(/\/+$/, ""),
    requestTimeoutMs: options.requestTimeoutMs ?? 60_000,
    reconnectForMs: options.reconnectForMs ?? 120_000,
    exchange: options.fetch === undefined ? environment.exchange : exchangeOver(options.fetch),
    openWebSocket: async (url) => (webSocket ?? openDefault)(url),
  };
}

function readVariable(name: "ATOLL_API_KEY" | "ATOLL_API_URL"): string | undefined {
  const value = environment.readVariable(name);
  return value === "" ? undefined : value;
}

async function openDefault(url: string): Promise<WebSocketLike> {
  return environment.openWebSocket(url);
}
