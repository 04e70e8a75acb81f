import { expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer } from "../support/test-server.ts";
import { TraceCollector } from "../support/trace-collector.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const clientSpan = "b7ad6b7169203331";
const traceparent = `00-${traceId}-${clientSpan}-01`;

test("a request, and the sandbox and the command that it creates, are spans below the client's own span", async () => {
  await using collector = await TraceCollector.start();
  const server = await startTestServer({ flags: ["--otlp-endpoint", collector.url] });
  try {
    const api = new ApiClient(server.url, server.key, { traceparent });
    const { sandbox } = await api.create();
    await api.run(sandbox.id, { argv: ["sh", "-c", "exit 3"] });
    await api.ask("DELETE", `/sandboxes/${sandbox.id}`);
    await api.as("wrong").ask("GET", "/sandboxes");
    // The server sends the remaining spans when it stops.
    await server.stop();
    expect([...collector.paths]).toEqual(["/v1/traces"]);
    expect(collector.resource).toMatchObject({ "service.name": "atoll" });
    const created = collector.one("POST /sandboxes");
    expect(created).toMatchObject({ traceId, parentSpanId: clientSpan, kind: 2 });
    expect(created.attributes).toMatchObject({
      "http.request.method": "POST",
      "http.route": "/sandboxes",
      "http.response.status_code": 201,
      "atoll.sandbox.id": sandbox.id,
    });
    expect(collector.one("sandbox create")).toMatchObject({ traceId, parentSpanId: created.spanId });
    const ran = collector.one("POST /sandboxes/:id/commands");
    const command = collector.one("command");
    expect(command).toMatchObject({ traceId, parentSpanId: ran.spanId });
    expect(command.attributes).toMatchObject({ "process.executable.name": "sh", "process.exit.code": 3 });
    const killed = collector.one("DELETE /sandboxes/:id");
    expect(collector.one("sandbox kill")).toMatchObject({ traceId, parentSpanId: killed.spanId });
    const refused = collector.one("GET /sandboxes");
    expect(refused.attributes).toMatchObject({ "error.type": "permission_denied" });
    expect(refused.traceId).not.toBe(traceId);
    expect(refused.status.code ?? 0).toBe(0);
    expect(JSON.stringify(collector.spans)).not.toContain("exit 3");
  } finally {
    await server.dispose();
  }
});

test("a running command and a missing collector do not delay the end of a server", async () => {
  const collector = await TraceCollector.start();
  const { url } = collector;
  const first = await startTestServer({ flags: ["--otlp-endpoint", url] });
  const api = new ApiClient(first.url, first.key);
  const { sandbox } = await api.create();
  await api.start(sandbox.id, { argv: ["sleep", "600"] });
  await first.stop();
  expect(collector.one("command").attributes).toMatchObject({ "atoll.left": true });
  await collector[Symbol.asyncDispose]();
  const flags = ["--otlp-endpoint", url, "--log-level", "silent"];
  await using second = await startTestServer({ dataDir: first.dataDir, flags });
  expect((await fetch(`${second.url}/readyz`)).status).toBe(200);
});
