import { execFileSync } from "node:child_process";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { PortInfo } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let api: ApiClient;
let id: string;

beforeAll(async () => {
  server = await startTestServer();
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

  test("is changed live, with the proxy's variables in every command, and each refusal is an event", async () => {
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
    let text = "";
    while (!/egress\.refused[^]*egress\.allowed[^]*egress\.refused/.test(text)) {
      const { value, done } = (await reader?.read()) ?? { done: true };
      if (done) break;
      text += Buffer.from(value ?? []).toString();
    }
    await reader?.cancel();
    expect(text).toContain(`"host":"127.0.0.1"`);
  });
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

  test("that are none are refused, and so is a directory that is not there", async () => {
    const put = await api.fetch("PUT", path("up"), {
      body: "x".repeat(5000),
      headers: { "content-type": "application/x-tar" },
    });
    expect([put.status, await put.json()]).toMatchObject([400, { error: { details: { files: 0 } } }]);
    expect((await api.fetch("GET", path("/nowhere"))).status).toBe(404);
  });
});
