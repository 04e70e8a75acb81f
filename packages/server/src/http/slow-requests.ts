import type { IncomingMessage, ServerResponse } from "node:http";

export interface SlowRequestLimits {
  /** The time limit for a body that is read whole, and for a pause in a stream. */
  bodyTimeoutMs: number;
  /** How long the rest of a body is read and discarded after the reply was sent, so that the client sees the reply. */
  lingerMs?: number;
}

/**
 * Closes the connection of a client that does not send what it announced. A stream may be of any length and as slow as
 * its reader in the sandbox makes it; only a client that sends nothing while there is room is disconnected. The request
 * gets no reply: the socket is destroyed.
 */
export function guardAgainstSlowness(
  request: IncomingMessage,
  response: ServerResponse,
  isStream: boolean,
  limits: SlowRequestLimits,
): void {
  const { headers } = request;
  const hasBody = headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
  if (!hasBody || request.complete) return;
  const { socket } = request;
  const { bodyTimeoutMs, lingerMs = 5_000 } = limits;
  let seenBytes = socket.bytesRead;
  let quietSinceMs = performance.now();
  const startedMs = quietSinceMs;
  let answeredAtMs: number | undefined;
  const look = setInterval(
    () => {
      const nowMs = performance.now();
      if (request.complete || socket.destroyed) return stop();
      if (response.writableEnded) answeredAtMs ??= nowMs;
      // Unread bytes mean that the client waits for this server.
      if (socket.bytesRead !== seenBytes || request.readableLength > 0) quietSinceMs = nowMs;
      seenBytes = socket.bytesRead;
      const isLate = nowMs - (isStream ? quietSinceMs : startedMs) > bodyTimeoutMs;
      const hasLingered = answeredAtMs !== undefined && nowMs - answeredAtMs > lingerMs;
      if (isLate || hasLingered) {
        stop();
        socket.destroy();
      }
    },
    Math.min(1_000, bodyTimeoutMs / 4),
  );
  look.unref();
  const stop = (): void => {
    clearInterval(look);
    socket.removeListener("close", stop);
  };
  socket.once("close", stop);
  request.once("end", stop);
}
