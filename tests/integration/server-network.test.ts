import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { ApiEvent, KeyCreated, PortInfo } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let api: ApiClient;
let id: string;

beforeAll(async () => {
  const policy = { drivers: ["local"], egress: { allow: ["*", "127.0.0.1"] } };
  server = await startTestServer({ flags: ["--policy", JSON.stringify(policy)] });
  api = new ApiClient(server.url, server.key);
  id = (await api.create()).sandbox.id;
});
afterAll(() => server.dispose());

const output = async (line: string): Promise<string> => (await api.run(id, { shell: line })).stdout;

describe("egress", () => {
  let outside: Server;
  let port: number;
  beforeAll(async () => {
    outside = createServer((_request, response) => response.end("outside")).listen(0, "127.0.0.1");
    await new Promise((resolve) => outside.once("listening", resolve));
    port = (outside.address() as AddressInfo).port;
  });
  afterAll(() => {
    outside.closeAllConnections();
    outside.close();
  });

  test("is changed while a sandbox runs, and each decision is an event and an audit line", async () => {
    const fetching = `curl -sS --noproxy '' http://127.0.0.1:${port}/`;
    expect(await output(fetching)).toContain("no rule names it");
    const policy = { allow: [`127.0.0.1:${port}`], deny: [] };
    expect((await api.ask("PUT", `/sandboxes/${id}/egress`, policy)).body).toEqual(policy);
    expect(await output(fetching)).toBe("outside");
    const refused = await api.ask("PUT", `/sandboxes/${id}/egress`, { allow: ["https://example.com"] });
    expect(refused.body.error).toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("allow[0]"),
    });
    await api.ask("PUT", `/sandboxes/${id}/egress`, { allow: [] });
    expect(await output(fetching)).toContain("no rule names it");
    const events = await api.fetch("GET", `/events?cursor=0&sandboxId=${id}`);
    const reader = events.body?.getReader();
    let found: ApiEvent[] = [];
    let text = "";
    while (found.length < 3) {
      const { value, done } = (await reader?.read()) ?? { done: true };
      if (done) break;
      text += Buffer.from(value ?? []).toString();
      const whole = text.slice(0, text.lastIndexOf("\n")).split("\n");
      const data = whole.flatMap((line) => /^data: ?(.*)$/.exec(line)?.[1] ?? []);
      found = data.map((line) => JSON.parse(line) as ApiEvent).filter(({ type }) => type.startsWith("egress."));
    }
    await reader?.cancel();
    const because = expect.stringContaining("no rule names it");
    const destination = { sandboxId: id, host: "127.0.0.1", port };
    expect(found).toMatchObject([
      { ...destination, type: "egress.refused", because },
      { ...destination, type: "egress.allowed" },
      { ...destination, type: "egress.refused", because },
    ]);
    expect(await auditedEgress()).toMatchObject([
      { result: "refused", details: { host: "127.0.0.1", port, because } },
      { result: "allowed", details: { host: "127.0.0.1", port } },
      { result: "refused", details: { host: "127.0.0.1", port, because } },
    ]);
  });

  test("of a sandbox is limited by the ceiling of the key that set its policy", async () => {
    const { secret } = (await api.ask<KeyCreated>("POST", "/keys", { name: "tenant", policy: { drivers: ["local"] } }))
      .body;
    const tenant = api.as(secret);
    const { sandbox } = await tenant.create();
    const path = `/sandboxes/${sandbox.id}/egress`;
    const inner = { allow: [`127.0.0.1:${port}`] };
    expect((await tenant.ask("PUT", path, inner)).body.error).toMatchObject({
      code: "permission_denied",
      details: { rule: "egress", egressRule: `127.0.0.1:${port}`, ceiling: "key" },
    });
    const fetching = `curl -sS --noproxy '' http://127.0.0.1:${port}/`;
    // A key with a higher ceiling allows the address when it sets the policy.
    expect((await api.ask("PUT", path, inner)).status).toBe(200);
    expect((await tenant.run(sandbox.id, { shell: fetching })).stdout).toBe("outside");
    expect((await tenant.ask("PUT", path, { allow: ["*"] })).status).toBe(200);
    expect((await tenant.run(sandbox.id, { shell: fetching })).stdout).toContain("no rule names it");
    await api.ask("DELETE", `/sandboxes/${sandbox.id}`);
  });

  test("refused without end is counted, and the number is logged when the sandbox is killed", async () => {
    const other = (await api.create()).sandbox.id;
    const asking = "for i in $(seq 8); do curl -s --noproxy '' -o /dev/null http://refused.test/; done";
    await api.run(other, { shell: asking });
    expect(await auditedEgress(other)).toHaveLength(3);
    await api.ask("DELETE", `/sandboxes/${other}`);
    const lines = await auditedEgress(other);
    expect(lines.slice(3)).toMatchObject([{ result: "refused", details: { host: "refused.test", more: 5 } }]);
  });

  async function auditedEgress(of = id): Promise<unknown[]> {
    const text = await readFile(join(server.dataDir, "audit", "audit.jsonl"), "utf8");
    const lines = text.split("\n").filter((line) => line !== "");
    return lines.map((line) => JSON.parse(line)).filter((line) => line.what === "egress" && line.sandboxId === of);
  }
});

describe("ports", () => {
  test("are waited for, guarded, and made public", async () => {
    await api.start(id, {
      shell: "mkdir -p web && echo page > web/index.html && python3 -m http.server -d web 8080",
    });
    const { body } = await api.ask<PortInfo>("POST", `/sandboxes/${id}/ports/8080/wait`, { timeoutMs: 60_000 });
    expect(body).toMatchObject({ port: 8080, isPublic: false });
    expect((await fetch(body.url)).status).toBe(403);
    expect(await (await fetch(`${body.url}?atoll_token=${body.token}`)).text()).toBe("page\n");
    await api.ask("PUT", `/sandboxes/${id}/ports/8080`, { isPublic: true });
    expect(await (await fetch(body.url)).text()).toBe("page\n");
    await api.ask("PUT", `/sandboxes/${id}/ports/8080`, { isPublic: false });
    expect((await fetch(body.url)).status).toBe(403);
  });
});

describe("signed URLs", () => {
  const sign = async (request: Record<string, unknown>): Promise<string> =>
    (await api.ask<{ url: string }>("POST", `/sandboxes/${id}/files/sign`, request)).body.url;

  test("write and read one file without a key", async () => {
    const put = await sign({ path: "signed/note.txt", method: "PUT" });
    expect((await fetch(put, { method: "PUT", body: "signed" })).status).toBe(204);
    const get = await sign({ path: "signed/note.txt" });
    expect(await (await fetch(get)).text()).toBe("signed");
    expect((await fetch(get, { method: "PUT", body: "x" })).status).toBe(403);
    expect((await fetch(get.replace("/signed/", "/signed/x"))).status).toBe(403);
    expect(await output("cat signed/note.txt")).toBe("signed");
  });
});

describe("archives", () => {
  const path = (directory: string): string => `/sandboxes/${id}/files/tar?path=${encodeURIComponent(directory)}`;

  test("go in and come out", async () => {
    const archive = execFileSync("tar", ["-C", `${import.meta.dirname}/../support`, "-cf", "-", "."]);
    const put = await api.fetch("PUT", path("up"), { body: archive, headers: { "content-type": "application/x-tar" } });
    expect(put.status).toBe(200);
    expect(((await put.json()) as { files: number }).files).toBeGreaterThan(5);
    const got = await api.fetch("GET", path("up"));
    expect(got.headers.get("content-type")).toBe("application/x-tar");
    const names = execFileSync("tar", ["-tf", "-"], { input: Buffer.from(await got.arrayBuffer()) });
    expect(names.toString()).toContain("./test-server.ts");
  });

  test("that are invalid are refused, and so is a missing directory", async () => {
    const put = await api.fetch("PUT", path("up"), {
      body: "x".repeat(5000),
      headers: { "content-type": "application/x-tar" },
    });
    expect([put.status, await put.json()]).toMatchObject([400, { error: { details: { files: 0 } } }]);
    expect((await api.fetch("GET", path("/nowhere"))).status).toBe(404);
  });
});
