import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { promisify } from "node:util";
import type { CommandInfo, CommandLine, CommandResult, KeyCreated, SandboxInfo, WatchLine } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { all, ApiClient, readLines } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let api: ApiClient;
let id: string;
let token: string;

beforeAll(async () => {
  server = await startTestServer({ flags: ["--heartbeat-ms", "100"] });
  api = new ApiClient(server.url, server.key);
  const created = await api.create({ labels: { purpose: "test" } });
  ({ id } = created.sandbox);
  ({ token } = created);
});
afterAll(() => server.dispose());

describe("sandboxes", () => {
  test("a new one is listed, described, changed and killed", async () => {
    const { sandbox } = await api.create({ labels: { team: "red" } });
    expect((await api.ask<SandboxInfo>("GET", `/sandboxes/${sandbox.id}`)).body).toMatchObject({ state: "running" });
    const listed = await api.ask<{ sandboxes: SandboxInfo[] }>("GET", "/sandboxes?label=team%3Dred");
    expect(listed.body.sandboxes.map((one) => one.id)).toEqual([sandbox.id]);
    const changed = await api.ask<SandboxInfo>("PATCH", `/sandboxes/${sandbox.id}`, { labels: { team: "blue" } });
    expect(changed.body.labels).toEqual({ team: "blue" });
    const usage = await api.ask<{ memoryBytes: number }>("GET", `/sandboxes/${sandbox.id}/usage`);
    expect(usage.body.memoryBytes).toBeGreaterThan(0);
    expect((await api.ask("DELETE", `/sandboxes/${sandbox.id}`)).body).toEqual({ killed: true });
    expect((await api.ask("DELETE", `/sandboxes/${sandbox.id}`)).body).toEqual({ killed: false });
    expect((await api.ask("GET", `/sandboxes/${sandbox.id}`)).status).toBe(404);
  });

  test("the same Idempotency-Key returns the same sandbox and token, and another body is refused", async () => {
    const headers = { "idempotency-key": "once" };
    const first = await api.ask<{ sandbox: SandboxInfo; token: string }>(
      "POST",
      "/sandboxes",
      { driver: "local" },
      headers,
    );
    const again = await api.ask<{ sandbox: SandboxInfo; token: string }>(
      "POST",
      "/sandboxes",
      { driver: "local" },
      headers,
    );
    expect(again.body.sandbox.id).toBe(first.body.sandbox.id);
    expect(again.body.token).toBe(first.body.token);
    const other = await api.ask("POST", "/sandboxes", { driver: "local", labels: { a: "b" } }, headers);
    expect(other.body.error?.code).toBe("invalid_argument");
    await api.ask("DELETE", `/sandboxes/${first.body.sandbox.id}`);
  });

  test("a held one is used only by its holder", async () => {
    const { sandbox } = await api.create();
    const path = `/sandboxes/${sandbox.id}/commands`;
    await api.ask("POST", `/sandboxes/${sandbox.id}/hold`, { holder: "me" });
    expect((await api.ask("POST", path, { shell: "true" })).body.error?.code).toBe("in_use");
    expect((await api.ask("POST", path, { shell: "true" }, { "x-atoll-holder": "me" })).status).toBe(200);
    await api.ask("DELETE", `/sandboxes/${sandbox.id}/hold?holder=me`);
    expect((await api.ask("POST", path, { shell: "true" })).status).toBe(200);
    await api.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });
});

describe("commands", () => {
  test("a response has the exit status and the output, and a non-zero exit code is no error", async () => {
    const result = await api.run(id, { shell: "echo out; echo err >&2; exit 3" });
    expect(result).toMatchObject({ stdout: "out\n", stderr: "err\n", command: { exitCode: 3, state: "exited" } });
  });

  test("a stream has the start, each byte once and the end", async () => {
    const response = await api.fetch("POST", `/sandboxes/${id}/commands`, {
      headers: { "content-type": "application/json", accept: "application/x-ndjson" },
      body: JSON.stringify({ shell: "printf 'h\\303\\251\\n'; printf '\\377'; exit 1" }),
    });
    const lines = (await all(readLines<CommandLine>(response))).filter(({ type }) => type !== "heartbeat");
    expect(lines.at(0)?.type).toBe("started");
    expect(lines.at(-1)).toMatchObject({ type: "ended", command: { exitCode: 1 } });
    const output = lines.flatMap((line) =>
      line.type === "stdout"
        ? [line.text === undefined ? Buffer.from(line.base64 ?? "", "base64") : Buffer.from(line.text)]
        : [],
    );
    expect(Buffer.concat(output)).toEqual(Buffer.from([0x68, 0xc3, 0xa9, 0x0a, 0xff]));
  });

  test("a client that disconnects does not end the command, and another one reads on from any byte", async () => {
    const leaving = new AbortController();
    const response = await api.fetch("POST", `/sandboxes/${id}/commands`, {
      headers: { "content-type": "application/json", accept: "application/x-ndjson" },
      body: JSON.stringify({ shell: "echo first; read line; echo second $line", stdin: true }),
      signal: leaving.signal,
    });
    const lines = readLines<CommandLine>(response);
    let commandId = "";
    for await (const line of lines) {
      if (line.type === "started") commandId = line.command.id;
      if (line.type === "stdout") break;
    }
    leaving.abort();
    const path = `/sandboxes/${id}/commands/${commandId}`;
    expect((await api.ask<CommandInfo>("GET", path)).body.state).toBe("running");
    const fed = await api.fetch("POST", `${path}/stdin?offset=0`, { body: "input\n" });
    expect(await fed.json()).toEqual({ stdinBytes: 6 });
    const again = await api.fetch("POST", `${path}/stdin?offset=0`, { body: "input\n" });
    expect(await again.json()).toEqual({ stdinBytes: 6 });
    const rest = await all(readLines<CommandLine>(await api.fetch("GET", `${path}/output?from=6`)));
    const text = rest.flatMap((line) => (line.type === "stdout" ? [line.text] : [])).join("");
    expect(text).toBe("second input\n");
    expect(rest.at(-1)).toMatchObject({ type: "ended", command: { exitCode: 0 } });
  });

  test("a quiet stream sends keep-alive lines", async () => {
    const response = await api.fetch("POST", `/sandboxes/${id}/commands`, {
      headers: { "content-type": "application/json", accept: "application/x-ndjson" },
      body: JSON.stringify({ shell: "read line", stdin: true }),
    });
    let commandId = "";
    for await (const line of readLines<CommandLine>(response)) {
      if (line.type === "started") commandId = line.command.id;
      if (line.type === "heartbeat") {
        await api.ask("DELETE", `/sandboxes/${id}/commands/${commandId}/stdin`);
      }
    }
    expect(commandId).not.toBe("");
  });

  test("waiting ends with the command, or with the given time", async () => {
    const command = await api.start(id, { shell: "read line; exit 7", stdin: true });
    const path = `/sandboxes/${id}/commands/${command.id}`;
    expect((await api.ask<CommandInfo>("GET", `${path}/wait?timeoutMs=20`)).body.state).toBe("running");
    const waiting = api.ask<CommandInfo>("GET", `${path}/wait`);
    await api.ask("POST", `${path}/signal`, { signal: "SIGTERM" });
    expect((await waiting).body).toMatchObject({ state: "exited", signal: "SIGTERM", exitCode: null });
  });

  test("reading from after the end is refused before the stream starts", async () => {
    const { command } = await api.run(id, { shell: "echo x" });
    const answer = await api.ask("GET", `/sandboxes/${id}/commands/${command.id}/output?from=3`);
    expect(answer).toMatchObject({ status: 400, body: { error: { details: { field: "from" } } } });
  });

  test("a one-off run leaves no sandbox, whether it is answered, streamed or repeated", async () => {
    const request = { argv: ["cat"], stdin: "6 * 7", driver: "local" };
    const first = await api.ask<CommandResult>("POST", "/run", request);
    expect(first.body).toMatchObject({ stdout: "6 * 7", command: { exitCode: 0 } });
    const headers = { "idempotency-key": "run-once" };
    const [a, b] = await Promise.all([
      api.ask<CommandResult>("POST", "/run", request, headers),
      api.ask<CommandResult>("POST", "/run", request, headers),
    ]);
    expect(a.body.command.id).toBe(b.body.command.id);
    const { body } = await api.ask<{ sandboxes: SandboxInfo[] }>("GET", "/sandboxes");
    expect(body.sandboxes.map((one) => one.id)).not.toContain(first.body.command.sandboxId);
  });
});

describe("files", () => {
  const path = (what: string): string => `/sandboxes/${id}/files${what}`;

  test("many megabytes go in and come out unchanged", async () => {
    const bytes = randomBytes(24 * 1024 * 1024);
    const put = await api.fetch("PUT", path("?path=big.bin&mode=600"), { body: bytes });
    expect(await put.json()).toMatchObject({ sizeBytes: bytes.byteLength, mode: 0o600 });
    const digest = createHash("sha256");
    const got = await api.fetch("GET", path("?path=/home/user/big.bin"));
    for await (const chunk of got.body as unknown as AsyncIterable<Uint8Array>) digest.update(chunk);
    expect(digest.digest("hex")).toBe(createHash("sha256").update(bytes).digest("hex"));
    const part = await api.fetch("GET", path("?path=big.bin&offset=5&length=7"));
    expect(Buffer.from(await part.arrayBuffer())).toEqual(bytes.subarray(5, 12));
  });

  test("directories are made, listed, renamed and removed", async () => {
    await api.ask("POST", path("/mkdir"), { path: "a/b" });
    await api.fetch("PUT", path("?path=a/b/c.json"), { body: "{}", headers: { "content-type": "application/json" } });
    const list = await api.ask<{ files: { name: string }[] }>("GET", path("/list?path=a&depth=2"));
    expect(list.body.files.map(({ name }) => name)).toEqual(["b", "b/c.json"]);
    await api.ask("POST", path("/rename"), { from: "a/b/c.json", to: "a/d.json" });
    expect((await api.ask("GET", path("/stat?path=a/d.json"))).body).toMatchObject({ type: "file", sizeBytes: 2 });
    expect((await api.ask("DELETE", path("?path=a&recursive=true"))).status).toBe(204);
    expect((await api.ask("GET", path("/stat?path=a"))).body.error?.code).toBe("not_found");
  });

  test("a missing file is an error with a status, not a stream that breaks off", async () => {
    expect(await api.ask("GET", path("?path=nope"))).toMatchObject({
      status: 404,
      body: { error: { code: "not_found" } },
    });
  });

  test("a watch reports changes, and continues where the client left it", async () => {
    await api.ask("POST", path("/mkdir"), { path: "watched" });
    const leaving = new AbortController();
    const first = await api.fetch("GET", path("/watch?path=watched"), { signal: leaving.signal });
    let last: Extract<WatchLine, { watch: string }> | undefined;
    for await (const line of readLines<WatchLine>(first)) {
      if (!("watch" in line)) continue;
      last = line;
      if (line.kind === "watching") break;
    }
    leaving.abort();
    await api.fetch("PUT", path("?path=watched/while-away"), { body: "x" });
    const second = await api.fetch("GET", path(`/watch?path=watched&watch=${last?.watch}&cursor=${last?.cursor}`));
    for await (const line of readLines<WatchLine>(second)) {
      if (!("watch" in line)) continue;
      expect(line.watch).toBe(last?.watch);
      if (line.path.endsWith("while-away")) break;
    }
  });

  test("a signed URL works without a key, and only for its file", async () => {
    await api.fetch("PUT", path("?path=shared.txt"), { body: "for all" });
    const signed = await api.ask<{ url: string }>("POST", path("/sign"), { path: "shared.txt" });
    expect(await (await fetch(signed.body.url)).text()).toBe("for all");
    expect((await fetch(signed.body.url.replace(/.(?=\/shared)/, "_"))).status).toBe(403);
  });
});

describe("events", () => {
  test("are followed from a cursor, and again from the last one received", async () => {
    const leaving = new AbortController();
    const response = await api.fetch("GET", `/events?cursor=0&sandboxId=${id}`, { signal: leaving.signal });
    const first = await readEvent(response);
    leaving.abort();
    expect(first.data).toMatchObject({ type: "sandbox.state", to: "creating", sandboxId: id });
    const again = new AbortController();
    const next = await api.fetch("GET", `/events?cursor=0&sandboxId=${id}`, {
      headers: { "last-event-id": String(first.id) },
      signal: again.signal,
    });
    expect((await readEvent(next)).data).toMatchObject({ to: "running" });
    again.abort();
  });

  test("start without a cursor with an id to reconnect with, before any event", async () => {
    const leaving = new AbortController();
    const response = await api.fetch("GET", `/events?sandboxId=${id}`, { signal: leaving.signal });
    let text = "";
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += Buffer.from(chunk).toString();
      if (/\n\nid: /.test(text) && text.endsWith("\n\n")) break;
    }
    leaving.abort();
    const [, place = ""] = /^retry: 1000\n\nid: (\d+)\n\n$/.exec(text) ?? [];
    expect(place).not.toBe("");
    const { command } = await api.run(id, { shell: "true" });
    const again = new AbortController();
    const headers = { "last-event-id": place };
    const next = await api.fetch("GET", `/events?sandboxId=${id}`, { headers, signal: again.signal });
    expect((await readEvent(next)).data).toMatchObject({ type: "command.started", commandId: command.id });
    again.abort();
  });
});

describe("the server itself", () => {
  test("reports that it lives and is ready, and its metrics", async () => {
    const stranger = api.as("");
    expect((await stranger.ask("GET", "/healthz")).body).toEqual({ status: "ok" });
    expect((await stranger.ask("GET", "/readyz")).body).toEqual({ status: "ready" });
    const { body } = await api.ask<KeyCreated>("POST", "/keys", { name: "prometheus", verbs: ["metrics"] });
    const metrics = await (await api.as(body.secret).fetch("GET", "/metrics")).text();
    expect(metrics).toMatch(/atoll_sandboxes\{state="running"\} \d/);
    expect(metrics).toContain("nodejs_eventloop_lag_p99_seconds");
    expect(metrics).toMatch(/atoll_http_request_seconds_count\{method="POST",route="\/sandboxes",status="201"\}/);
  });

  test("serves its metrics only with a key that may read them, unless they are public", async () => {
    const { body } = await api.ask<KeyCreated>("POST", "/keys", { name: "tenant" });
    for (const one of [api.as(""), api.as(token), api.as(body.secret)]) {
      expect((await one.ask("GET", "/metrics")).body.error?.code).toBe("permission_denied");
    }
    expect((await api.fetch("GET", "/metrics")).status).toBe(200);
    await using open = await startTestServer({ flags: ["--public-metrics"] });
    expect((await new ApiClient(open.url, "").fetch("GET", "/metrics")).status).toBe(200);
  });

  test("shows its configuration with origins only to an admin", async () => {
    expect((await api.ask("GET", "/config")).body).toMatchObject({ settings: { port: { value: 0, from: "flag" } } });
    expect((await api.as(token).ask("GET", "/config")).status).toBe(403);
  });

  test("serves its OpenAPI description", async () => {
    const document = await api.as("").ask<{ openapi: string }>("GET", "/openapi.json");
    expect(document.body.openapi).toBe("3.1.0");
    expect(await (await api.as("").fetch("GET", "/docs")).text()).toContain("createSandbox");
  });

  test("works for curl with only a key", async () => {
    const args = ["-sN", `${server.url}/sandboxes/${id}/commands`, "-H", `Authorization: Bearer ${server.key}`];
    const json = ["-H", "Content-Type: application/json", "-H", "Accept: application/x-ndjson"];
    const { stdout } = await promisify(execFile)("curl", [...args, ...json, "-d", '{"shell":"echo hi; exit 4"}']);
    const lines = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as CommandLine);
    expect(lines.map(({ type }) => type).filter((type) => type !== "heartbeat")).toEqual([
      "started",
      "stdout",
      "ended",
    ]);
  });
});

async function readEvent(response: Response): Promise<{ id: number; data: Record<string, unknown> }> {
  let text = "";
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += Buffer.from(chunk).toString();
    const [, eventId, data] = /id: (\d+)\nevent: \S+\ndata: (.*)\n\n/.exec(text) ?? [];
    if (data !== undefined) return { id: Number(eventId), data: JSON.parse(data) };
  }
  throw new Error("The stream ended without an event");
}
