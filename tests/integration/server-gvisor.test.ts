// @module-tag gvisor
import type { ApiEvent, CommandInfo, CommandResult, PortInfo } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let api: ApiClient;
let id: string;
beforeAll(async () => {
  server = await startTestServer({ flags: ["--pool", '[{"count":1}]'] });
  api = new ApiClient(server.url, server.key);
  id = (await api.create({ driver: "gvisor" })).sandbox.id;
});
afterAll(() => server.dispose());

test("code runs in a new sandbox", async () => {
  const { body } = await api.ask<CommandResult>("POST", "/run", { language: "python", code: "print(6 * 7)" });
  expect(body).toMatchObject({ stdout: "42\n", command: { exitCode: 0 } });
});

test("a port has a URL, which needs its token until the port is made public", async () => {
  await api.start(id, { argv: ["python3", "-m", "http.server", "8000"] });
  const { body: port } = await api.ask<PortInfo>("POST", `/sandboxes/${id}/ports/8000/wait`, {});
  expect((await fetch(port.url)).status).toBeGreaterThanOrEqual(401);
  const inside = await fetch(port.url, { headers: { "x-port-token": port.token ?? "" } });
  expect(await inside.text()).toContain("Directory listing");
  await api.ask("PUT", `/sandboxes/${id}/ports/8000`, { isPublic: true });
  expect((await fetch(port.url)).status).toBe(200);
});

test("a connection without a rule is refused, and the refusal is an event", async () => {
  const result = await api.run(id, { argv: ["curl", "-sSf", "--max-time", "10", "http://example.com/"] });
  expect(result.command.exitCode).not.toBe(0);
  const leaving = new AbortController();
  const response = await api.fetch("GET", `/events?cursor=0&sandboxId=${id}`, { signal: leaving.signal });
  let text = "";
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += Buffer.from(chunk).toString();
    if (text.includes("egress.refused")) break;
  }
  leaving.abort();
  const line = text.split("\n").find((one) => one.startsWith("data:") && one.includes("egress.refused"));
  expect(JSON.parse(line?.slice("data:".length) ?? "{}") as ApiEvent).toMatchObject({ host: "example.com", port: 80 });
  const policy = await api.ask("PUT", `/sandboxes/${id}/egress`, { allow: ["not a rule at all"] });
  expect(policy.body.error?.code).toBe("invalid_argument");
});

test("a command that reaches its time limit reports it", async () => {
  const { command } = await api.run(id, { argv: ["sleep", "1000"], timeoutMs: 200 });
  expect(command satisfies CommandInfo).toMatchObject({ timedOut: true, exitCode: null, signal: "SIGTERM" });
});
