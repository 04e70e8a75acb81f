import { execFile } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { promisify } from "node:util";
import type { CommandResult } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const origin = "https://app.example";
let server: TestServer;
let api: ApiClient;

beforeAll(async () => {
  server = await startTestServer({ flags: ["--cors-origins", `${origin},https://other.example`] });
  api = new ApiClient(server.url, server.key);
});
afterAll(() => server.dispose());

describe("a page of an allowed origin", () => {
  test("gets an answer to its preflight request", async () => {
    const asks = { "access-control-request-method": "PUT", "access-control-request-headers": "authorization" };
    const preflight = await api.as("").fetch("OPTIONS", "/sandboxes", { headers: { origin, ...asks } });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe(origin);
    expect(preflight.headers.get("access-control-allow-methods")).toContain("PUT");
    expect(preflight.headers.get("access-control-allow-headers")).toMatch(/authorization.*idempotency-key.*range/);
    expect(preflight.headers.get("access-control-allow-credentials")).toBeNull();
  });

  test("may read the response, also an error", async () => {
    for (const path of ["/sandboxes", "/sandboxes/abcdefghij0123456789", "/nowhere"]) {
      const answer = await api.fetch("GET", path, { headers: { origin } });
      expect(answer.headers.get("access-control-allow-origin")).toBe(origin);
      expect(answer.headers.get("vary")).toContain("origin");
    }
  });

  test("may open a WebSocket", async () => {
    const socket = new WebSocket(`${server.url.replace("http", "ws")}/ws`, { origin });
    await once(socket, "open");
    socket.terminate();
  });
});

describe("a page of any other origin", () => {
  const strange = "https://app.example.evil.test";

  test("gets no CORS headers, and may read nothing", async () => {
    for (const method of ["OPTIONS", "GET"]) {
      const answer = await api.fetch(method, "/sandboxes", { headers: { origin: strange } });
      expect(answer.headers.get("access-control-allow-origin")).toBeNull();
    }
  });

  test("opens no WebSocket", async () => {
    const socket = new WebSocket(`${server.url.replace("http", "ws")}/ws`, { origin: strange });
    const [error] = (await once(socket, "error")) as [Error];
    expect(error.message).toContain("403");
  });
});

describe("a client that offers HTTP/2 with its request", () => {
  const key = (): string[] => ["-H", `Authorization: Bearer ${server.key}`];

  test("is answered over HTTP/1.1, with a body and without", async () => {
    const json = ["-H", "Content-Type: application/json", "-d", '{"driver":"local","argv":["cat"],"stdin":"hi"}'];
    const { stdout } = await promisify(execFile)("curl", ["-sS", "--http2", ...key(), ...json, `${server.url}/run`]);
    expect(JSON.parse(stdout) as CommandResult).toMatchObject({ stdout: "hi", command: { exitCode: 0 } });
    const list = await promisify(execFile)("curl", ["-sSf", "--http2", ...key(), `${server.url}/sandboxes`]);
    expect(JSON.parse(list.stdout)).toHaveProperty("sandboxes");
  });

  test("may send its body in pieces, and another request after it", async () => {
    const { sandbox } = await api.create();
    const body = "x".repeat(300_000);
    const socket = connect(Number(new URL(server.url).port), "127.0.0.1");
    const upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n";
    const common = `Host: ${new URL(server.url).host}\r\nAuthorization: Bearer ${server.key}\r\n`;
    socket.write(
      `PUT /sandboxes/${sandbox.id}/files?path=f HTTP/1.1\r\n${common}${upgrade}Content-Length: ${body.length}\r\n\r\n`,
    );
    for (let at = 0; at < body.length; at += 100_000) socket.write(body.slice(at, at + 100_000));
    socket.write(`GET /sandboxes/${sandbox.id} HTTP/1.1\r\n${common}Connection: close\r\n\r\n`);
    let answers = "";
    socket.on("data", (data: Buffer) => {
      answers += data.toString();
    });
    await once(socket, "close");
    expect(answers.match(/HTTP\/1\.1 200/g)).toHaveLength(2);
    expect(answers).toMatch(/"sizeBytes":300000[^]*"state":"running"/);
  });

  test("is refused without a key, like any client", async () => {
    const args = ["-sS", "--http2", "-o", "/dev/null", "-w", "%{http_code} %{http_version}", `${server.url}/sandboxes`];
    expect((await promisify(execFile)("curl", args)).stdout).toBe("403 1.1");
  });
});
