import { httpHeaders } from "@atoll/protocol";
import type { FastifyInstance } from "fastify";

const methods = "GET, POST, PUT, PATCH, DELETE";
const ownHeaders = ["content-type", "accept", "last-event-id", "range", "if-range", "x-request-id"];
const allowedHeaders = [...Object.values(httpHeaders), ...ownHeaders];
const exposedHeaders = ["x-request-id", "retry-after", "accept-ranges", "content-range", "etag"];

/**
 * Lets browsers call from these origins and no others. Keys travel in headers, never in cookies, so a browser never
 * sends one by itself.
 */
export function allowOrigins(app: FastifyInstance, origins: readonly string[]): void {
  if (origins.length === 0) return;
  app.addHook("onRequest", async (request, reply) => {
    const { origin } = request.headers;
    reply.header("vary", "origin");
    if (origin === undefined || !origins.includes(origin)) return;
    reply.header("access-control-allow-origin", origin);
    reply.header("access-control-expose-headers", exposedHeaders.join(", "));
    if (request.method !== "OPTIONS") return;
    await reply
      .header("access-control-allow-methods", methods)
      .header("access-control-allow-headers", allowedHeaders.join(", "))
      .header("access-control-max-age", "600")
      .code(204)
      .send();
  });
}
