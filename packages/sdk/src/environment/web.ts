import type { Environment } from "./environment.ts";

/** Browsers and everything else that has the web's globals: no environment variables, the global WebSocket. */
export const environment: Environment = {
  readVariable: () => undefined,
  openWebSocket: async (url) => new WebSocket(url),
  detachTimer: () => undefined,
};
