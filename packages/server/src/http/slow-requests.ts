import type { IncomingMessage, ServerResponse } from "node:http";

export interface SlowRequestLimits {
  /** For a body that is read whole; and how long a stream may pause. */
  bodyTimeoutMs: number;
  /** What is still sent after the answer is read away for so long, so that the client sees the answer. */
  lingerMs?: number;
}

/**
 * Cuts off a client that does not send what it announced. A stream may be of any length and as slow as its reader in
 * the sandbox makes it; only a client that sends nothing, while there is room, is cut off. Resolves nothing: the socket
 * goes.
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
      // Bytes that nobody has taken yet: the client waits for us.
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
