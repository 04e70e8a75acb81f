import { exchangeOver } from "../http/exchange.ts";
import type { Environment } from "./environment.ts";

/** Browsers and everything else that has the web's globals: no environment variables, the global WebSocket. */
export const environment: Environment = {
  readVariable: () => undefined,
  // Browsers insist on `fetch` being called without a receiver of its own.
  exchange: exchangeOver((input, init) => globalThis.fetch(input, init)),
  openWebSocket: async (url) => new WebSocket(url),
  detachTimer: () => undefined,
};
