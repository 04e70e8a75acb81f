import { exchangeOver } from "../http/exchange.ts";
import type { Environment } from "./environment.ts";

/**
 * The environment of browsers and all runtimes with the web's globals: no environment variables, the global WebSocket.
 */
export const environment: Environment = {
  readVariable: () => undefined,
  // Browsers require that `fetch` is called without another receiver.
  exchange: exchangeOver((input, init) => globalThis.fetch(input, init)),
  openWebSocket: async (url) => new WebSocket(url),
  detachTimer: () => undefined,
};
