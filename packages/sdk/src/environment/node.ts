import type { Environment, WebSocketLike } from "./environment.ts";
import { exchange } from "./node-exchange.ts";

/**
 * The environment of Node. Node 20 has no global WebSocket, and a `ws` socket can stop keeping the program alive in
 * every version.
 */
export const environment: Environment = {
  // oxlint-disable-next-line node/no-process-env -- the one place of the SDK that reads the environment
  readVariable: (name) => process.env[name],
  exchange,
  async openWebSocket(url) {
    const { WebSocket } = await import("ws");
    const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 64 * 1024 * 1024 });
    let keepAlive: (isNeeded: boolean) => void = () => undefined;
    socket.on("upgrade", ({ socket: stream }) => {
      keepAlive = (isNeeded) => void (isNeeded ? stream.ref() : stream.unref());
    });
    return Object.assign(socket as unknown as WebSocketLike, {
      keepAlive: (isNeeded: boolean) => {
        keepAlive(isNeeded);
      },
    });
  },
  detachTimer: (timer) => (timer as NodeJS.Timeout).unref(),
};
