import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Atoll, CommandExitError, isSandboxError, Sandbox } from "@atoll/sdk";
import { MockServer } from "@atoll/sdk/mock";
import { expect, onTestFinished, test } from "vitest";
import { cutBody } from "./support/faulty-connection.ts";

/** The mock, with other answers before its own. */
function withAnswers(...answers: (() => Response | "lost")[]): {
  client: Atoll;
  requests: Request[];
  mock: MockServer;
} {
  const mock = new MockServer();
  const requests: Request[] = [];
  const client = new Atoll({
    ...mock.connection,
    fetch: async (input, init) => {
      const request = new Request(input, init);
      requests.push(request.clone());
      const answer = answers.shift()?.();
      if (answer instanceof Response) return answer;
      const real = await mock.connection.fetch(request);
      // The server has handled the request, and its answer is lost.
      if (answer === "lost") throw new TypeError("fetch failed", { cause: new Error("other side closed") });
      return real;
    },
  });
  return { client, requests, mock };
}

const gateway = () =>
  new Response("<html>bad gateway</html>", { status: 502, headers: { "content-type": "text/html" } });

test("a create whose answer is lost is retried under the same key and happens once", async () => {
  const { client, requests } = withAnswers(() => "lost", gateway);
  const sandbox = await Sandbox.create({ client });
  expect(requests).toHaveLength(3);
  const keys = requests.map((request) => request.headers.get("idempotency-key"));
  expect(new Set(keys).size).toBe(1);
  expect(keys[0]).toMatch(/^\S{16,}$/);
  const all: string[] = [];
  for await (const { id } of client.sandboxes()) all.push(id);
  expect(all).toEqual([sandbox.id]);
});

test("a request whose answer breaks off is retried where that is safe", async () => {
  const mock = new MockServer();
  const { connection } = mock;
  const create = new Atoll({ ...connection, fetch: cutBody(connection.fetch, "json", 20) });
  const sandbox = await Sandbox.create({ client: create });
  const all: string[] = [];
  for await (const { id } of create.sandboxes()) all.push(id);
  expect(all).toEqual([sandbox.id]);
  const key = new Atoll({ ...connection, fetch: cutBody(connection.fetch, "json", 20) });
  await expect(key.keys.create({ name: "once" })).rejects.toMatchObject({ code: "unavailable" });
  expect(await key.keys.list()).toHaveLength(1);
});

test("every create has a key of its own", async () => {
  const { client, requests } = withAnswers();
  await Promise.all([Sandbox.create({ client }), Sandbox.create({ client })]);
  expect(new Set(requests.map((request) => request.headers.get("idempotency-key"))).size).toBe(2);
});

test("a request that must not be repeated is not retried", async () => {
  const { client, requests } = withAnswers(() => "lost");
  await expect(client.keys.create({ name: "once" })).rejects.toMatchObject({ code: "unavailable" });
  expect(requests).toHaveLength(1);
  expect(await client.keys.list()).toHaveLength(1);
});

test("Retry-After is honoured, also for a request that is not retried otherwise", async () => {
  const busy = () =>
    Response.json(
      { error: { code: "limit_reached", message: "Cannot go on: too many requests" } },
      { status: 429, headers: { "retry-after": "0.2" } },
    );
  const { client } = withAnswers(busy);
  const startedAtMs = performance.now();
  await client.keys.create({ name: "later" });
  expect(performance.now() - startedAtMs).toBeGreaterThanOrEqual(190);
});

test("a request that the server refuses is not retried", async () => {
  const refused = () => Response.json({ error: { code: "guest_silent", message: "Cannot go on" } }, { status: 504 });
  const { client, requests } = withAnswers(refused);
  await expect(client.templates.list()).rejects.toMatchObject({ code: "guest_silent", retryable: true });
  expect(requests).toHaveLength(1);
});

test("an unknown code of a newer server becomes internal, and stays in the details", async () => {
  const news = () => Response.json({ error: { code: "brand_new", message: "Cannot go on: news" } }, { status: 418 });
  const { client } = withAnswers(news);
  const error = await client.templates.list().catch((thrown: unknown) => thrown);
  expect(isSandboxError(error, "internal")).toBe(true);
  expect(error).toMatchObject({ message: "Cannot go on: news", details: { code: "brand_new" } });
});

test("unknown fields of a newer server are left out, and anything else that does not fit is an error", async () => {
  const template = { name: "host", kind: "host", isBuiltIn: true };
  const newer = () => Response.json({ templates: [{ ...template, color: { deep: 1 } }, template], total: 2 });
  const other = () => Response.json({ templates: [{ ...template, isBuiltIn: "yes", color: 1 }] });
  const { client } = withAnswers(newer, other);
  expect(await client.templates.list()).toEqual([template, template]);
  await expect(client.templates.list()).rejects.toMatchObject({
    code: "internal",
    message: expect.stringContaining("templates.0.isBuiltIn") as string,
  });
});

test("an answer that is not from an Atoll server is reported as such", async () => {
  const page = () => new Response("<html></html>", { status: 200, headers: { "content-type": "text/html" } });
  const missing = () => new Response("not here", { status: 404 });
  const { client } = withAnswers(page, missing);
  await expect(client.templates.list()).rejects.toMatchObject({
    suggestion: expect.stringContaining("baseUrl") as string,
  });
  await expect(client.templates.list()).rejects.toMatchObject({ details: { status: 404, body: "not here" } });
});

test("the error for a missing server has its address and a suggestion, after a few attempts", async () => {
  const closed = createServer().listen(0, "127.0.0.1");
  await once(closed, "listening");
  const { port } = closed.address() as AddressInfo;
  closed.close();
  await once(closed, "close");
  let attempts = 0;
  const counted: typeof fetch = (...request) => {
    attempts += 1;
    return fetch(...request);
  };
  const client = new Atoll({ baseUrl: `http://127.0.0.1:${port}`, apiKey: "any", fetch: counted });
  const error = await Sandbox.create({ client }).catch((thrown: unknown) => thrown);
  expect(attempts).toBeLessThan(5);
  expect(error).toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(
      /Cannot reach the Atoll server at http:\/\/127\.0\.0\.1:\d+: .*ECONNREFUSED/,
    ) as string,
    suggestion: expect.stringContaining("ATOLL_API_URL") as string,
  });
});

test("an abort ends a request with the signal's reason, also between attempts", async () => {
  const reason = new Error("changed my mind");
  const stop = new AbortController();
  const gateways = Array.from({ length: 1000 }, (_, index) => () => {
    // The pause before the next attempt comes next.
    if (index === 2) setImmediate(() => stop.abort(reason));
    return gateway();
  });
  const { client } = withAnswers(...gateways);
  await expect(client.templates.list({ signal: stop.signal })).rejects.toBe(reason);
  await expect(Sandbox.create({ client, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  await expect(client.events({ signal: AbortSignal.abort(reason) }).next()).rejects.toBe(reason);
});

test("an abort ends a request that is under way on a real connection", async () => {
  const reason = new Error("enough");
  const stop = new AbortController();
  const url = await listen(() => stop.abort(reason));
  const client = new Atoll({ baseUrl: url, apiKey: "any" });
  await expect(client.templates.list({ signal: stop.signal })).rejects.toBe(reason);
  const hasty = new Atoll({ baseUrl: url, apiKey: "any", requestTimeoutMs: 50 });
  await expect(hasty.templates.list()).rejects.toMatchObject({ code: "timed_out" });
});

test("a request without an answer is retried where that is safe, and fails in the end", async () => {
  const mock = new MockServer();
  const keys: (string | undefined)[] = [];
  const { connection } = mock;
  const url = await listen((request, response) => {
    keys.push(request.headers["idempotency-key"]?.toString());
    // The first two requests are never answered.
    if (keys.length > 2) void passOn(mock, request, response);
  });
  mock.onCommand("say", ({ stdout }) => stdout("said"));
  const { id, commands } = await Sandbox.create(connection);
  const client = new Atoll({ baseUrl: url, apiKey: connection.apiKey, requestTimeoutMs: 50 });
  expect((await new Sandbox(client, id).commands.run("say")).stdout).toBe("said");
  expect(new Set(keys).size).toBe(1);
  expect(await commands.list()).toHaveLength(1);

  const mute = await listen(() => undefined);
  const asking = new Sandbox(new Atoll({ baseUrl: mute, apiKey: "any", requestTimeoutMs: 50 }), id);
  const timedOut = { code: "timed_out", message: "Cannot GET /sandboxes/:id/files: no answer in 50 ms" };
  await expect(asking.files.read("file")).rejects.toMatchObject(timedOut);
  await expect(asking.files.read("file", { as: "stream" })).rejects.toMatchObject(timedOut);
});

test.for(["Node's client", "fetch"])("a download that stops is repeated, over %s", async (kind) => {
  const mock = new MockServer();
  const { connection } = mock;
  const sandbox = await Sandbox.create(connection);
  await sandbox.files.write("file", "the whole of it");
  let reads = 0;
  const url = await listen((request, response) => {
    reads += 1;
    if (reads === 1) response.writeHead(200).write("the who");
    else void passOn(mock, request, response);
  });
  const client = new Atoll({
    baseUrl: url,
    apiKey: connection.apiKey,
    requestTimeoutMs: 100,
    ...(kind === "fetch" ? { fetch } : {}),
  });
  expect(await new Sandbox(client, sandbox.id).files.read("file")).toBe("the whole of it");
  expect(reads).toBeGreaterThan(1);
});

test("the message of CommandExitError says how the command ended, and its last error output", async () => {
  const { client, mock } = withAnswers();
  mock.onCommand("fail", ({ stderr }) => {
    stderr("no such thing\n");
    return 2;
  });
  const sandbox = await Sandbox.create({ client });
  const error = await sandbox.commands.run("fail", { check: true }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(CommandExitError);
  expect(String(error)).toBe("CommandExitError: The command exited with code 2: no such thing");
});

test("consecutive runs share connections", async () => {
  const mock = new MockServer();
  mock.onCommand("greet", ({ stdout }) => {
    stdout("hi\n");
    return 0;
  });
  const { connection } = mock;
  const sockets = new Set<unknown>();
  let endAnswer = (): unknown => undefined;
  const baseUrl = await listen((request, response) => {
    sockets.add(request.socket);
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const { method = "GET", url = "/" } = request;
      const headers = Object.entries(request.headers).map(([name, value]): [string, string] => [name, String(value)]);
      const body = Buffer.concat(chunks);
      const answer = await connection.fetch(`${connection.baseUrl}${url}`, { method, headers, body });
      response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" });
      response.write(Buffer.from(await answer.arrayBuffer()));
      endAnswer = () => response.end();
      if (!url.endsWith("/commands")) endAnswer();
    })();
  });
  const sandbox = await Sandbox.create({ baseUrl, apiKey: connection.apiKey });
  for (let count = 0; count < 12; count += 1) {
    expect((await sandbox.commands.run("greet")).stdout).toBe("hi\n");
    endAnswer();
  }
  // A connection may still receive the end of its answer while the next run starts on another.
  expect(sockets.size).toBeLessThan(6);
});

/** Answers like the mock. */
async function passOn({ connection }: MockServer, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method = "GET", url = "/" } = request;
  const headers = Object.entries(request.headers).map(([name, value]): [string, string] => [name, String(value)]);
  const body = Buffer.concat((await request.toArray()) as Buffer[]);
  const question = { method, headers, ...(method === "GET" ? {} : { body }) };
  const answer = await connection.fetch(`${connection.baseUrl}${url}`, question);
  response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" });
  response.end(Buffer.from(await answer.arrayBuffer()));
}

async function listen(handle: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const server = createServer(handle);
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => {
      server.close(resolve);
    });
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
