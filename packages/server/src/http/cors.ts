import { httpHeaders } from "@atoll/protocol";
import type { FastifyInstance } from "fastify";

const methods = "GET, POST, PUT, PATCH, DELETE";
const allowedHeaders = [...Object.values(httpHeaders), "content-type", "accept", "last-event-id", "x-request-id"];

/** Browsers may call from these origins and no others. Keys travel in headers, never in cookies, so none is ever sent unasked. */
export function allowOrigins(app: FastifyInstance, origins: readonly string[]): void {
  if (origins.length === 0) return;
  app.addHook("onRequest", async (request, reply) => {
    const { origin } = request.headers;
    reply.header("vary", "origin");
    if (origin === undefined || !origins.includes(origin)) return;
    reply.header("access-control-allow-origin", origin);
    reply.header("access-control-expose-headers", "x-request-id, retry-after");
    if (request.method !== "OPTIONS") return;
    await reply
      .header("access-control-allow-methods", methods)
      .header("access-control-allow-headers", allowedHeaders.join(", "))
      .header("access-control-max-age", "600")
      .code(204)
      .send();
  });
}
