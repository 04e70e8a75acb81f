import { SandboxError } from "@atoll/protocol";
import { environment } from "#environment";
import type { WebSocketLike } from "./environment/environment.ts";
import { exchangeOver, type Exchange } from "./http/exchange.ts";

/** Where the server is and how to connect to it. Every call that needs no `Atoll` accepts these. */
export interface ConnectionOptions {
  /** An API key; `ATOLL_API_KEY` in Node when absent. */
  apiKey?: string | undefined;
  /** A sandbox's own token, which works for that sandbox without a key. */
  sandboxToken?: string | undefined;
  /** The address of the server; when absent `ATOLL_API_URL` in Node, else `http://127.0.0.1:4600`. */
  baseUrl?: string | undefined;
  /** The name under which this client holds sandboxes. */
  holder?: string | undefined;
  /**
   * How long one request may take. For a stream or a large file this limits the time until the first byte. A sandbox or
   * a background command that is created after that, within two minutes, is removed again.
   */
  requestTimeoutMs?: number | undefined;
  /** How long to wait for a server that has answered before and is gone. */
  reconnectForMs?: number | undefined;
  /** Replaces the runtime's own way to send requests. */
  fetch?: typeof fetch | undefined;
  /** Replaces the runtime's own WebSocket. */
  webSocket?: ((url: string) => WebSocketLike | Promise<WebSocketLike>) | undefined;
}

export interface Connection {
  apiKey: string | undefined;
  sandboxToken: string | undefined;
  holder: string | undefined;
  /** The address, without a slash at its end. */
  baseUrl: string;
  requestTimeoutMs: number;
  reconnectForMs: number;
  exchange: Exchange;
  openWebSocket: (url: string) => Promise<WebSocketLike>;
}

export const defaultBaseUrl = "http://127.0.0.1:4600";

export function resolveConnection(options: ConnectionOptions): Connection {
  const { webSocket } = options;
  // A token is chosen for the little that it allows; a key from the environment beside it would allow more.
  const apiKey = options.apiKey ?? (options.sandboxToken === undefined ? readVariable("ATOLL_API_KEY") : undefined);
  return {
    apiKey: headerValue("apiKey", apiKey),
    sandboxToken: headerValue("sandboxToken", options.sandboxToken),
    holder: headerValue("holder", options.holder),
    baseUrl: wholeUrl(options.baseUrl ?? readVariable("ATOLL_API_URL") ?? defaultBaseUrl),
    requestTimeoutMs: options.requestTimeoutMs ?? 60_000,
    reconnectForMs: options.reconnectForMs ?? 120_000,
    exchange: options.fetch === undefined ? environment.exchange : exchangeOver(options.fetch),
    openWebSocket: async (url) => (webSocket ?? openDefault)(url),
  };
}

/**
 * Removes the line break that a value from a file often ends in, which no header can contain. The value itself is a
 * secret, so no message contains it.
 */
function headerValue(name: "apiKey" | "sandboxToken" | "holder", value: string | undefined): string | undefined {
  const trimmed = value?.trim();
  if (trimmed === undefined || trimmed === "") return undefined;
  if (/^[\x20-\x7E]*$/.test(trimmed)) return trimmed;
  throw new SandboxError("invalid_argument", `Cannot use this ${name}: it has characters that no header can contain`, {
    suggestion: `Check that all of it, and nothing else, was copied into ${name}`,
  });
}

function wholeUrl(text: string): string {
  const url = URL.canParse(text.trim()) ? new URL(text.trim()) : undefined;
  if (url?.protocol !== "http:" && url?.protocol !== "https:") {
    throw new SandboxError("invalid_argument", `Cannot use ${JSON.stringify(text)} as the address of a server`, {
      suggestion: `Write baseUrl or ATOLL_API_URL as ${defaultBaseUrl}`,
    });
  }
  return url.href.replace(/[?#].*$/, "").replace(/\/+$/, "");
}

function readVariable(name: "ATOLL_API_KEY" | "ATOLL_API_URL"): string | undefined {
  const value = environment.readVariable(name);
  return value === "" ? undefined : value;
}

async function openDefault(url: string): Promise<WebSocketLike> {
  return environment.openWebSocket(url);
}
