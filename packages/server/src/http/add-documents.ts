import type { FastifyInstance } from "fastify";
import { docsPage } from "./docs-page.ts";
import { openApiDocument } from "./openapi.ts";

/**
 * Serves the contract for programs and for people. It is the same for all clients, and says nothing about this server.
 * Both documents are made at the first request: few servers are asked for them, and making them takes longer than half
 * of a start.
 */
export function addDocuments(app: FastifyInstance): void {
  let document: ReturnType<typeof openApiDocument> | undefined;
  let page: string | undefined;
  app.get("/openapi.json", async (_request, reply) => {
    document ??= openApiDocument();
    return reply.type("application/json; charset=utf-8").send(document);
  });
  app.get("/docs", async (_request, reply) => {
    page ??= docsPage();
    return reply
      .header("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
      .type("text/html; charset=utf-8")
      .send(page);
  });
}
