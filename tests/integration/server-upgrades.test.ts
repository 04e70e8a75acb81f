import { connect } from "node:net";
import type { PortInfo } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

let server: TestServerProcess;
let api: ApiClient;
let id: string;
beforeAll(async () => {
  // The server runs in a separate process, so that the test notices its end.
  server = await startTestServerProcess({ flags: ["--port-domains", "ports.test"] });
  api = new ApiClient(server.url, server.key);
  id = (await api.create({ driver: "gvisor" })).sandbox.id;
});
afterAll(() => server.dispose());

/** Sends these bytes and returns what the server answers until it closes the connection. */
async function say(bytes: string): Promise<string> {
  const { hostname, port } = new URL(server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on("error", () => undefined);
  let text = "";
  socket.on("data", (data: Buffer) => {
    text += data.toString("latin1");
  });
  socket.end(Buffer.from(bytes, "latin1"));
  await new Promise<void>((resolve) => {
    socket.once("close", () => resolve());
  });
  return text;
}

const key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const offer = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";

async function expectAlive(): Promise<void> {
  expect((await api.ask("GET", "/healthz")).status).toBe(200);
}

describe("an offer of another protocol ends no server", () => {
  test.for([
    "//",
    "//[",
    "//:99999/ws",
    "///",
    "/\\\\",
    "*",
    "http://[/ws",
    "http://x:y/ws",
    "http://127.0.0.1/ws",
    "ws://x/ws",
    "/%",
    "/%ff%fe",
    "/ws/%",
    "/ws//[",
    "/ws#\\",
    "/\xff\xfe",
    "/?//[",
    `/p/${"z".repeat(20)}/80/`,
    "/p/%/80/",
    "/p/x/99999/",
    "/p//[/80",
  ])("to %s", async (target) => {
    for (const extra of [key, "", "Sec-WebSocket-Key: x\r\n"]) {
      const text = await say(`GET ${target} HTTP/1.1\r\n${offer}Sec-WebSocket-Version: 13\r\n${extra}\r\n`);
      expect(text).not.toMatch(/^HTTP\/1.1 101 /);
    }
    await expectAlive();
  });

  test("to an address that is too long", async () => {
    await say(`GET /${"a".repeat(20_000)} HTTP/1.1\r\n${offer}\r\n`);
    await expectAlive();
  });

  test.for<[string, string]>([
    ["no key", "Sec-WebSocket-Version: 13\r\n"],
    ["an invalid key", "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n"],
    ["two keys", `Sec-WebSocket-Version: 13\r\n${key}${key}`],
    ["no version", key],
    ["another version", `Sec-WebSocket-Version: 99999999999999999999\r\n${key}`],
    ["invalid protocols", `Sec-WebSocket-Version: 13\r\n${key}Sec-WebSocket-Protocol: ,,\r\n`],
  ])("to our own path with %s", async ([, headers]) => {
    expect(await say(`GET /ws HTTP/1.1\r\n${offer}${headers}\r\n`)).toMatch(/^HTTP\/1.1 4\d\d /);
    await expectAlive();
  });

  test("with a method that allows none", async () => {
    for (const method of ["POST", "CONNECT", "OPTIONS", "HEAD"]) {
      await say(`${method} /ws HTTP/1.1\r\n${offer}Sec-WebSocket-Version: 13\r\n${key}\r\n`);
    }
    await expectAlive();
  });

  test.for(["/p/zzzzzzzzzzzzzzzzzzzz/80/", "//", "/ws"])("to %s before the previous response", async (target) => {
    for (const before of ["/healthz", "/docs", "/p/zzzzzzzzzzzzzzzzzzzz/80/"]) {
      await say(`GET ${before} HTTP/1.1\r\nHost: localhost\r\n\r\nGET ${target} HTTP/1.1\r\n${offer}\r\n`);
    }
    await expectAlive();
  });

  test("repeated hundreds of times on one connection", async () => {
    const one = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    await say(one.repeat(300));
    await expectAlive();
  });

  test("to a public port, with bytes that are invalid in a header", async () => {
    await api.ask<PortInfo>("PUT", `/sandboxes/${id}/ports/80`, { isPublic: true });
    for (const bytes of ["\f", "\t", "\xff", "%", "\x7f"]) {
      for (const headers of ["", "Connection: Upgrade\r\nUpgrade: x\r\n"]) {
        await say(`GET /p/${id}/80?${bytes} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n${headers}\r\n`);
      }
    }
    await expectAlive();
  });
});

describe("a request with a foreign host name that resolves to this server", () => {
  const webSocket = `Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n${key}`;
  const send = (target: string, host: string, headers = ""): Promise<string> =>
    say(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${headers}\r\n`);

  test.for(["/healthz", "/docs", "/openapi.json", "/metrics", "/sandboxes", "/signed/x.y", `/p/${"z".repeat(20)}/80/`])(
    "is refused at %s, also when it is authorised",
    async (target) => {
      const answer = await send(target, "evil.test", `Authorization: Bearer ${server.key}\r\n`);
      expect(answer).toMatch(
        /^HTTP\/1.1 403 [^]*Cannot take a request for [^ ]+: this server has another name[^]*hostNames/,
      );
      expect(await send(target, "localhost:1", `Authorization: Bearer ${server.key}\r\n`)).not.toContain("no name of");
    },
  );

  test("cannot open a WebSocket to the server or a port, while the server's own name can", async () => {
    for (const target of ["/ws", `/p/${id}/80/`]) {
      expect(await send(target, "evil.test", webSocket)).toMatch(/^HTTP\/1.1 403 Forbidden\r\nConnection: close/);
    }
    expect(await send("/ws", "localhost", webSocket)).toMatch(/^HTTP\/1.1 101 /);
  });

  test("is forwarded if the name is that of a port", async () => {
    expect(await send("/", `81-${id}.ports.test:4600`)).toContain("This port is guarded.");
    expect(await send("/", `81-${id}.other.test:4600`)).toContain("this server has another name");
  });
});
