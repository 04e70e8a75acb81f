import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let api: ApiClient;
let id: string;
beforeAll(async () => {
  // These times are long enough for ordinary clients on a busy machine.
  const limits = ["--body-timeout-ms", "2000", "--headers-timeout-ms", "2000", "--max-body-bytes", "65536"];
  server = await startTestServer({ flags: [...limits, "--max-connections", "50"] });
  api = new ApiClient(server.url, server.key);
  id = (await api.create({ driver: "gvisor" })).sandbox.id;
});
afterAll(() => server.dispose());

function open(): Socket {
  const { hostname, port } = new URL(server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on("error", () => undefined);
  return socket;
}

/**
 * Resolves when the connection has ended, also by a reset, with which the server may end a client that does not read.
 */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once("close", () => resolve());
  });
}

/** Sends these bytes and returns what the server answers until it closes the connection. */
async function say(...parts: string[]): Promise<string> {
  const socket = open();
  let text = "";
  socket.on("data", (data: Buffer) => {
    text += data.toString();
  });
  for (const part of parts) socket.write(part);
  await closed(socket);
  return text;
}

const auth = (): string => `Authorization: Bearer ${server.key}\r\nHost: localhost\r\n`;

describe("bodies", () => {
  test.for<[string, string, string, number]>([
    ["truncated JSON", '{"driver":', "application/json", 400],
    ["no JSON at all", "hello", "application/json", 400],
    ["JSON of another kind", "[1,2]", "application/json", 400],
    ["null", "null", "application/json", 400],
    ["a field __proto__", '{"__proto__":{"driver":"local"}}', "application/json", 400],
    ["a form", "driver=local", "application/x-www-form-urlencoded", 415],
    ["plain text", '{"driver":"local"}', "text/plain", 415],
    ["an invalid content type", "{}", "x", 415],
  ])("%s is refused", async ([, body, type, status]) => {
    const response = await api.fetch("POST", "/sandboxes", { body, headers: { "content-type": type } });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code: "invalid_argument" } });
  });

  test.for<[Record<string, unknown>, string]>([
    [{ drvier: "local" }, "drvier"],
    [{ driver: "local", limits: { memory: 1 } }, "limits.memory"],
    [{ driver: "docker" }, "driver"],
    [{ limits: { cpus: "many" } }, "limits.cpus"],
    [{ egress: { allow: [1] } }, "egress.allow.0"],
  ])("%j is refused by the field's name", async ([body, field]) => {
    const answer = await api.ask("POST", "/sandboxes", body);
    expect(answer.body.error).toMatchObject({ code: "invalid_argument", details: { field } });
    expect(answer.body.error?.message).toContain(field);
  });

  test("a missing body counts as an empty one", async () => {
    const answer = await api.ask<{ holder: unknown }>("POST", `/sandboxes/${id}/hold`);
    expect(answer.body.error).toMatchObject({ code: "invalid_argument", details: { field: "holder" } });
    const bare = await say(`POST /sandboxes/${id}/hold HTTP/1.1\r\n${auth()}Connection: close\r\n\r\n`);
    expect(bare).toContain('"field":"holder"');
  });

  test("a body that is too large is refused, with and without Content-Length", async () => {
    const labels = { a: "x".repeat(100_000) };
    expect((await api.ask("POST", "/sandboxes", { labels })).status).toBe(413);
    const big = JSON.stringify({ labels });
    const chunk = `${big.length.toString(16)}\r\n${big}\r\n0\r\n\r\n`;
    const type = "Content-Type: application/json";
    const head = `POST /sandboxes HTTP/1.1\r\n${auth()}${type}\r\nTransfer-Encoding: chunked\r\n\r\n`;
    expect(await say(head, chunk)).toMatch(/^HTTP\/1.1 413 /);
  });

  test("unknown, repeated and missing parameters are refused by name", async () => {
    for (const [query, field] of [
      ["path=/etc&pth=1", "pth"],
      ["path=/etc&path=/usr", "path"],
      ["", "path"],
    ]) {
      const answer = await api.ask("GET", `/sandboxes/${id}/files/stat?${query}`);
      expect(answer.body.error).toMatchObject({ code: "invalid_argument", details: { field } });
    }
  });
});

describe("fields where none are allowed", () => {
  test.for<[string, string, unknown, string]>([
    ["POST", "/sandboxes?driver=local", {}, "driver"],
    ["GET", "/sandboxes/:id?verbose=1", undefined, "verbose"],
    ["GET", "/snapshots?x", undefined, "x"],
    ["GET", "/config?__proto__=1", undefined, "__proto__"],
    ["PUT", "/templates/none?name=x", undefined, "name"],
    ["DELETE", "/sandboxes/:id", { force: true }, "force"],
    ["DELETE", "/sandboxes/:id/files?path=none", { recursive: true }, "recursive"],
  ])("%s %s %j is refused by the field's name", async ([method, path, body, field]) => {
    const answer = await api.ask(method, path.replace(":id", id), body);
    expect(answer.body.error).toMatchObject({ code: "invalid_argument", details: { field } });
  });

  test("an empty body, and the parameters of a probe, are accepted", async () => {
    const { body } = await api.ask("DELETE", `/sandboxes/${"z".repeat(20)}`, {});
    expect(body.error?.code).toBe("not_found");
    expect((await api.ask("GET", "/healthz?at=1")).status).toBe(200);
  });
});

describe.concurrent("slow clients", () => {
  test("one that does not finish its headers is disconnected", async () => {
    expect(await say("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")).toMatch(/^(HTTP\/1.1 408 |$)/);
  });

  test("one that sends its JSON byte by byte is disconnected", async () => {
    const socket = open();
    socket.write(
      `POST /sandboxes HTTP/1.1\r\n${auth()}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{`,
    );
    const drip = setInterval(() => socket.write(" "), 50);
    await closed(socket);
    clearInterval(drip);
  });

  test("one that stops in the middle of a file is disconnected, and nothing is written", async ({ expect }) => {
    const path = `/sandboxes/${id}/files?path=/home/user/half`;
    const type = "Content-Type: application/octet-stream";
    const head = `PUT ${path} HTTP/1.1\r\n${auth()}${type}\r\nContent-Length: 1000\r\n\r\nhalf`;
    await say(head);
    await expect
      .poll(async () => (await api.ask("GET", `/sandboxes/${id}/files/stat?path=/home/user/half`)).status)
      .toBe(404);
  });

  test("one that is refused and keeps sending is disconnected", async () => {
    const head = `PUT /sandboxes/${id}/files?path=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n`;
    expect(await say(head, "x".repeat(1000))).toMatch(/^HTTP\/1.1 403 /);
  });

  test("a file that comes slowly but steadily is written", async () => {
    const pieces = (async function* () {
      for (let count = 0; count < 10; count += 1) {
        await new Promise((resolve) => setTimeout(resolve, 250));
        yield Buffer.from("piece");
      }
    })();
    const response = await api.fetch("PUT", `/sandboxes/${id}/files?path=slow`, {
      body: pieces as unknown as string,
      duplex: "half",
    });
    expect(await response.json()).toMatchObject({ sizeBytes: 50 });
  });
});

describe("addresses and headers", () => {
  test.for<[string, number]>([
    ["/sandboxes/../keys", 404],
    ["/sandboxes/%2e%2e/keys", 404],
    ["/sandboxes/..%2fkeys", 400],
    ["/sandboxes/%", 400],
    ["/sandboxes/%00", 400],
    [`/sandboxes/${"a".repeat(300)}`, 414],
    ["//keys", 404],
    ["/KEYS", 404],
    ["/sandboxes/", 400],
    ["/p/x/80/", 404],
    ["/signed/x", 403],
  ])("%s gets %i with an error in our format", async ([path, status]) => {
    const text = await say(`GET ${path} HTTP/1.1\r\n${auth()}Connection: close\r\n\r\n`);
    expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(text).toMatch(/"code":"(not_found|invalid_argument|permission_denied)"/);
  });

  test("a path with .. stays in the sandbox", async () => {
    const answer = await api.ask(
      "GET",
      `/sandboxes/${id}/files/stat?path=/../../../../../../../../etc/shadow&user=user`,
    );
    expect(answer.body).toMatchObject({ type: "file", uid: 0 });
    const shadow = await api.ask("GET", `/sandboxes/${id}/files?path=/../../../etc/shadow`);
    expect(shadow.body.error?.code).toBe("permission_denied");
  });

  test.for<[string, string]>([
    ["two lengths", "Content-Length: 1\r\nContent-Length: 2\r\n"],
    ["a length and chunks", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"],
    ["a negative length", "Content-Length: -1\r\n"],
    ["a header with a bare line feed", "X-Bad: a\nX-Worse b\r\n"],
    ["headers without end", `X-Big: ${"x".repeat(100_000)}\r\n`],
  ])("a request with %s is refused", async ([, header]) => {
    expect(await say(`POST /sandboxes HTTP/1.1\r\n${auth()}${header}\r\n{}`)).toMatch(/^HTTP\/1.1 4(00|31) /);
  });

  test("a request id of the client is used only if it is harmless", async () => {
    const harmless = await api.ask("GET", "/healthz", undefined, { "x-request-id": "abc-1" });
    expect(harmless.headers.get("x-request-id")).toBe("abc-1");
    const long = await api.ask("GET", "/healthz", undefined, { "x-request-id": "a".repeat(200) });
    expect(long.headers.get("x-request-id")).toHaveLength(36);
  });

  test("no CORS headers are sent", async () => {
    const preflight = await api.fetch("OPTIONS", "/sandboxes", {
      headers: { origin: "https://evil.example", "access-control-request-method": "POST" },
    });
    expect(preflight.headers.get("access-control-allow-origin")).toBeNull();
    const plain = await api.ask("GET", "/sandboxes", undefined, { origin: "https://evil.example" });
    expect(plain.headers.get("access-control-allow-origin")).toBeNull();
  });
});

test("the number of connections is limited, and others connect when one ends", { timeout: 60_000 }, async () => {
  await using small = await startTestServer({ flags: ["--max-connections", "3"] });
  const { hostname, port } = new URL(small.url);
  const connectAnother = (): Socket => {
    const socket = connect({ host: hostname, port: Number(port) });
    socket.on("error", () => undefined);
    return socket;
  };
  const greet = async (socket: Socket): Promise<boolean> => {
    const answered = new Promise<boolean>((resolve) => {
      socket.once("data", () => resolve(true));
      socket.once("close", () => resolve(false));
    });
    socket.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return answered;
  };
  const three = Array.from({ length: 3 }, connectAnother);
  for (const socket of three) expect(await greet(socket)).toBe(true);
  expect(await greet(connectAnother())).toBe(false);
  three[0]?.destroy();
  await expect.poll(() => greet(connectAnother())).toBe(true);
  for (const socket of three) socket.destroy();
});

test("after all these requests the server works normally", async () => {
  expect((await api.run(id, { shell: "echo fine" })).stdout).toBe("fine\n");
});
