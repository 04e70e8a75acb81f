import type { FastifyInstance } from "fastify";
import { docsPage } from "./docs-page.ts";
import { openApiDocument } from "./openapi.ts";

/** The contract, for programs and for people. It says the same to everybody, and nothing of this server. */
export function addDocuments(app: FastifyInstance): void {
  const document = openApiDocument();
  const page = docsPage();
  app.get("/openapi.json", async (_request, reply) => reply.type("application/json; charset=utf-8").send(document));
  app.get("/docs", async (_request, reply) =>
    reply
      .header("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
      .type("text/html; charset=utf-8")
      .send(page),
  );
}
