import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { ApiEvent, KeyCreated, SandboxCreated, SandboxInfo } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let admin: ApiClient;
beforeAll(async () => {
  server = await startTestServer();
  admin = new ApiClient(server.url, server.key);
});
afterAll(() => server.dispose());

/** Returns a signal that also aborts after a deadline, so that a test does not wait for an event that never comes. */
function orLate({ signal }: AbortController): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(60_000)]);
}

async function* eventsOf(response: Response): AsyncGenerator<ApiEvent, void, void> {
  let held = "";
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    const lines = (held + Buffer.from(chunk).toString()).split("\n");
    held = lines.pop() ?? "";
    for (const line of lines) if (line.startsWith("data: ")) yield JSON.parse(line.slice("data: ".length)) as ApiEvent;
  }
}

/** Sandboxes without gVisor start faster, and authorisation works the same for them. */
const policy = { drivers: ["local"] };

async function makeKey(request: Record<string, unknown>): Promise<{ id: string; api: ApiClient }> {
  const { status, body } = await admin.ask<KeyCreated>("POST", "/keys", { name: "test", policy, ...request });
  expect(status).toBe(201);
  return { id: body.key.id, api: admin.as(body.secret) };
}

describe("a request without authorisation", () => {
  test.for<[string, Record<string, string>]>([
    ["no key", {}],
    ["a key that does not exist", { authorization: `Bearer atk_${"0".repeat(12)}_${"A".repeat(43)}` }],
    ["text that is no key", { authorization: "Bearer x" }],
    ["a key in another scheme", { authorization: "Basic YTpi" }],
    ["an empty key", { "x-api-key": "" }],
  ])("%s is refused before the body is read", async ([, headers]) => {
    const answer = await admin.as("", headers).ask("POST", "/sandboxes", { nonsense: true });
    expect(answer).toMatchObject({ status: 403, body: { error: { code: "permission_denied" } } });
    expect(answer.body.error?.requestId).toBe(answer.headers.get("x-request-id"));
  });

  test("the error for a wrong key does not depend on what exists", async () => {
    const { sandbox } = await admin.create();
    const stranger = admin.as(`atk_${"0".repeat(12)}_${"A".repeat(43)}`);
    const [there, absent] = await Promise.all([
      stranger.ask("GET", `/sandboxes/${sandbox.id}`),
      stranger.ask("GET", `/sandboxes/${"z".repeat(20)}`),
    ]);
    expect({ ...there.body.error, requestId: "" }).toEqual({ ...absent.body.error, requestId: "" });
    await admin.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });
});

describe("a key for its own sandboxes", () => {
  test("does not see those of others, and gets the same errors as for missing ones", async () => {
    const mine = await makeKey({});
    const other = await makeKey({});
    const { sandbox } = await mine.api.create();
    const absent = await other.api.ask("GET", `/sandboxes/${"z".repeat(20)}`);
    for (const [method, path] of [
      ["GET", ""],
      ["GET", "/usage"],
      ["GET", "/commands"],
      ["GET", "/files?path=/etc/passwd"],
      ["GET", "/ports/80"],
      ["DELETE", ""],
    ] as const) {
      const answer = await other.api.ask(method, `/sandboxes/${sandbox.id}${path}`);
      expect(answer.status).toBe(404);
      expect(answer.body.error?.message.replace(sandbox.id, "")).toBe(
        absent.body.error?.message.replace("z".repeat(20), ""),
      );
    }
    expect((await other.api.ask<{ sandboxes: SandboxInfo[] }>("GET", "/sandboxes")).body.sandboxes).toEqual([]);
    expect((await mine.api.ask<SandboxInfo>("GET", `/sandboxes/${sandbox.id}`)).body.owner).toBe(mine.id);
    expect((await mine.api.ask("DELETE", `/sandboxes/${sandbox.id}`)).body).toEqual({ killed: true });
    // A key that could see the sandbox learns that it is gone, and other keys do not.
    expect((await mine.api.ask("DELETE", `/sandboxes/${sandbox.id}`)).body).toEqual({ killed: false });
    expect((await admin.ask("DELETE", `/sandboxes/${sandbox.id}`)).body).toEqual({ killed: false });
    expect((await other.api.ask("DELETE", `/sandboxes/${sandbox.id}`)).status).toBe(404);
  });

  test("gets no events of those of others", async () => {
    const mine = await makeKey({});
    const other = await makeKey({});
    const { sandbox: foreign } = await other.api.create();
    const { sandbox } = await mine.api.create();
    const leaving = new AbortController();
    const response = await mine.api.fetch("GET", "/events?cursor=0", { signal: leaving.signal });
    let text = "";
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += Buffer.from(chunk).toString();
      if (text.includes(`"${sandbox.id}","from":"creating","to":"running"`)) break;
    }
    leaving.abort();
    expect(text).not.toContain(foreign.id);
    expect(text).not.toContain("security.refused");
    await Promise.all([foreign, sandbox].map(({ id }) => admin.ask("DELETE", `/sandboxes/${id}`)));
  });
});

describe("events of a key's own sandboxes", () => {
  test("are streamed from the first one on", async () => {
    const mine = await makeKey({});
    const leaving = new AbortController();
    const response = await mine.api.fetch("GET", "/events", { signal: orLate(leaving) });
    const events = eventsOf(response);
    const { sandbox } = await mine.api.create();
    expect((await events.next()).value).toMatchObject({ type: "sandbox.state", sandboxId: sandbox.id, to: "creating" });
    expect((await events.next()).value).toMatchObject({ sandboxId: sandbox.id, from: "creating", to: "running" });
    leaving.abort();
    await admin.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });

  test("include those from before a restart, of removed sandboxes", async () => {
    const first = await startTestServer();
    const root = new ApiClient(first.url, first.key);
    const keys = await Promise.all(
      ["mine", "other"].map(
        async (name) => (await root.ask<KeyCreated>("POST", "/keys", { name, policy })).body.secret,
      ),
    );
    const [{ sandbox }, { sandbox: foreign }] = (await Promise.all(keys.map((key) => root.as(key).create()))) as [
      SandboxCreated,
      SandboxCreated,
    ];
    for (const [index, { id }] of [sandbox, foreign].entries()) {
      const api = root.as(keys[index] ?? "");
      await api.run(id, { shell: "exit 3" });
      await api.ask("DELETE", `/sandboxes/${id}`);
    }
    await first.stop();
    await using next = await startTestServer({ dataDir: first.dataDir });
    const leaving = new AbortController();
    const api = new ApiClient(next.url, keys[0] ?? "");
    const response = await api.fetch("GET", "/events?cursor=0", { signal: orLate(leaving) });
    const seen: ApiEvent[] = [];
    for await (const event of eventsOf(response)) {
      seen.push(event);
      if (event.type === "sandbox.state" && event.to === "killed") break;
    }
    leaving.abort();
    expect(seen.map((event) => ("sandboxId" in event ? event.sandboxId : ""))).toEqual(seen.map(() => sandbox.id));
    expect(seen.filter(({ type }) => type !== "sandbox.state").map(({ type }) => type)).toEqual([
      "command.started",
      "command.ended",
    ]);
    expect(seen[0]).toMatchObject({ to: "creating" });
    expect(JSON.stringify(seen)).not.toContain("sandboxOwner");
  });
});

describe("a key's scope", () => {
  test("verbs: others are refused", async () => {
    const { api } = await makeKey({ verbs: ["read"] });
    expect((await api.ask("GET", "/sandboxes")).status).toBe(200);
    expect((await api.ask("POST", "/sandboxes", {})).body.error).toMatchObject({
      code: "permission_denied",
      details: { verb: "sandboxes" },
    });
    expect((await api.ask("GET", "/keys")).status).toBe(403);
    expect((await api.ask("GET", "/config")).status).toBe(403);
  });

  test("templates: others are refused, also for runs", async () => {
    const { api } = await makeKey({ templates: ["debian"] });
    expect((await api.ask("POST", "/sandboxes", { driver: "local" })).status).toBe(403);
    expect((await api.ask("POST", "/run", { argv: ["true"], driver: "local" })).status).toBe(403);
  });

  test("sandboxes: the number is limited under concurrency, and a repeated request counts once", async () => {
    const { api } = await makeKey({ policy: { ...policy, limits: { sandboxes: 2 } } });
    const headers = { "idempotency-key": "one" };
    const first = await api.ask<SandboxCreated>("POST", "/sandboxes", { driver: "local" }, headers);
    const answers = await Promise.all(
      [1, 2, 3].map(() => api.ask<SandboxCreated>("POST", "/sandboxes", { driver: "local" })),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 429, 429]);
    expect(answers.find(({ status }) => status === 429)?.body.error).toMatchObject({
      code: "limit_reached",
      details: { limit: "sandboxes", used: 2, allowed: 2, ceiling: "key" },
    });
    const again = await api.ask<SandboxCreated>("POST", "/sandboxes", { driver: "local" }, headers);
    expect(again.body.sandbox.id).toBe(first.body.sandbox.id);
    const { body } = await api.ask<{ sandboxes: SandboxInfo[] }>("GET", "/sandboxes");
    expect(body.sandboxes).toHaveLength(2);
    await Promise.all(body.sandboxes.map(({ id }) => api.ask("DELETE", `/sandboxes/${id}`)));
  });

  test("rate: the refusal of too many requests says when to retry", async () => {
    const { api } = await makeKey({ requestsPerMinute: 3 });
    const answers = await Promise.all(Array.from({ length: 5 }, () => api.ask("GET", "/sandboxes")));
    const refused = answers.filter(({ status }) => status === 429);
    expect(refused).toHaveLength(2);
    expect(Number(refused[0]?.headers.get("retry-after"))).toBeGreaterThan(0);
  });

  test("a revoked key is refused at once", async () => {
    const { id, api } = await makeKey({});
    expect((await api.ask("GET", "/sandboxes")).status).toBe(200);
    expect((await admin.ask("DELETE", `/keys/${id}`)).status).toBe(204);
    expect((await api.ask("GET", "/sandboxes")).status).toBe(403);
    expect((await admin.ask("DELETE", `/keys/${id}`)).status).toBe(404);
  });
});

describe("streams and signed URLs of a key that is revoked", () => {
  test.for<[string, (id: string, commandId: string) => string]>([
    ["server-sent events", () => "/events"],
    ["output of a command", (id, commandId) => `/sandboxes/${id}/commands/${commandId}/output`],
    ["a watch", (id) => `/sandboxes/${id}/files/watch?path=/home/user`],
  ])("%s: end with the reason", { timeout: 60_000 }, async ([, path]) => {
    const { id, api } = await makeKey({});
    const { sandbox } = await api.create();
    const command = await api.start(sandbox.id, { shell: "cat", stdin: true });
    const response = await api.fetch("GET", path(sandbox.id, command.id));
    expect(response.status).toBe(200);
    const waiting = api.ask("GET", `/sandboxes/${sandbox.id}/commands/${command.id}/wait?timeoutMs=50000`);
    const text = response.text();
    const file = { path: "/etc/passwd" };
    const signed = await api.ask<{ url: string }>("POST", `/sandboxes/${sandbox.id}/files/sign`, file);
    expect((await fetch(signed.body.url, { method: "HEAD" })).status).toBe(200);
    expect((await admin.ask("DELETE", `/keys/${id}`)).status).toBe(204);
    expect((await fetch(signed.body.url, { method: "HEAD" })).status).toBe(403);
    expect((await text).trimEnd().split("\n").at(-1)).toContain('"code":"permission_denied"');
    expect((await waiting).body.error?.code).toBe("permission_denied");
    await admin.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });
});

describe("uploads of a key that is revoked", () => {
  /** Sends a part of the body, and never the rest. */
  function beginUpload(api: ApiClient, path: string): Promise<Response> {
    const body = new ReadableStream({ start: (stream) => stream.enqueue(Buffer.alloc(1024)) });
    return api.fetch("PUT", path, { body, duplex: "half", headers: { "content-type": "application/octet-stream" } });
  }

  async function expectRefused(answer: Promise<Response>, keyId: string): Promise<void> {
    expect((await admin.ask("DELETE", `/keys/${keyId}`)).status).toBe(204);
    const response = await answer;
    expect(await response.json()).toMatchObject({ error: { code: "permission_denied" } });
    expect(response.status).toBe(403);
  }

  test("a file: is refused in the middle, and writes nothing", { timeout: 60_000 }, async () => {
    const { id, api } = await makeKey({});
    const { sandbox } = await api.create();
    const names = async (): Promise<string[]> => {
      const listed = await admin.ask<{ files?: { name: string }[] }>(
        "GET",
        `/sandboxes/${sandbox.id}/files/list?path=/home/user/late`,
      );
      return (listed.body.files ?? []).map(({ name }) => name);
    };
    const answer = beginUpload(api, `/sandboxes/${sandbox.id}/files?path=/home/user/late/file`);
    // The upload goes into a temporary file until it is complete.
    await expect.poll(names).toHaveLength(1);
    await expectRefused(answer, id);
    expect(await names()).toEqual([]);
    await admin.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });

  test("a template: is refused in the middle, and leaves nothing", { timeout: 60_000 }, async () => {
    const { id, api } = await makeKey({ verbs: ["admin"] });
    const uploads = (): Promise<string[]> => readdir(join(server.dataDir, "uploads"));
    const answer = beginUpload(api, "/templates/late");
    await expect.poll(uploads).toHaveLength(1);
    await expectRefused(answer, id);
    expect(await uploads()).toEqual([]);
    expect(JSON.stringify((await admin.ask("GET", "/templates")).body)).not.toContain('"late"');
  });

  test("a request whose body comes later is refused", { timeout: 60_000 }, async () => {
    const { id, api } = await makeKey({});
    let send: (text: string) => void = () => undefined;
    const body = new ReadableStream({
      start: (stream) => {
        send = (text) => {
          stream.enqueue(Buffer.from(text));
          stream.close();
        };
        stream.enqueue(Buffer.from(" "));
      },
    });
    const answer = api.fetch("POST", "/sandboxes", {
      body,
      duplex: "half",
      headers: { "content-type": "application/json" },
    });
    const isUsed = async (): Promise<boolean> => {
      const listed = await admin.ask<{ keys: { id: string; lastUsedAtMs?: number }[] }>("GET", "/keys");
      return listed.body.keys.some((key) => key.id === id && key.lastUsedAtMs !== undefined);
    };
    await expect.poll(isUsed).toBe(true);
    expect((await admin.ask("DELETE", `/keys/${id}`)).status).toBe(204);
    send('{ "driver": "local" }');
    expect((await answer).status).toBe(403);
  });
});

describe("a sandbox's own token", () => {
  test("allows commands, files and ports of that sandbox, but not to kill it", async () => {
    const [{ sandbox, token }, other] = [await admin.create(), await admin.create()];
    for (const api of [admin.as(token), admin.as("", { "x-atoll-sandbox-token": token })]) {
      expect((await api.run(sandbox.id, { shell: "echo hi" })).stdout).toBe("hi\n");
      expect((await api.ask("GET", `/sandboxes/${sandbox.id}/files/stat?path=/etc`)).status).toBe(200);
      expect((await api.ask("GET", `/sandboxes/${sandbox.id}/ports/80`)).status).toBe(200);
      for (const [method, path] of [
        ["DELETE", `/sandboxes/${sandbox.id}`],
        ["GET", "/sandboxes"],
        ["GET", `/sandboxes/${other.sandbox.id}`],
        ["GET", `/sandboxes/${"z".repeat(20)}`],
        ["GET", "/keys"],
      ] as const) {
        expect((await api.ask(method, path)).body.error?.code).toBe("permission_denied");
      }
    }
    await Promise.all([sandbox, other.sandbox].map(({ id }) => admin.ask("DELETE", `/sandboxes/${id}`)));
  });
});

test("refusals are events, and the audit log says who did what without any secret", async () => {
  await admin.as("atk_wrong").ask("GET", "/sandboxes");
  const response = await admin.fetch("GET", "/events?cursor=0");
  let text = "";
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += Buffer.from(chunk).toString();
    if (text.includes("security.refused")) break;
  }
  const { sandbox, token } = await admin.create();
  await admin.ask("DELETE", `/sandboxes/${sandbox.id}`);
  // A request that names the key by its secret is refused, and the secret is not logged.
  const revoked = await admin.ask("DELETE", `/keys/${server.key}`);
  expect(revoked.body.error).toMatchObject({ code: "invalid_argument", details: { field: "keyId" } });
  expect(JSON.stringify(revoked.body)).not.toContain(server.key);
  await admin.ask("DELETE", `/templates/${server.key.toLowerCase().slice(0, 63)}`);
  await expect
    .poll(() => readFile(join(server.dataDir, "audit", "audit.jsonl"), "utf8"))
    .toContain('"what":"removeTemplate"');
  const audit = await readFile(join(server.dataDir, "audit", "audit.jsonl"), "utf8");
  expect(audit).toContain('"what":"createSandbox"');
  expect(audit).not.toContain(token);
  expect(audit).toContain('"what":"revokeKey"');
  expect(audit).toContain('"what":"removeTemplate"');
  expect(audit.toLowerCase()).not.toContain(server.key.toLowerCase().slice(0, 63));
});
