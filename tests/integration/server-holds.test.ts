import type { KeyCreated, SandboxId } from "@atoll/protocol";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { RawWebSocket } from "../support/raw-websocket.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let admin: ApiClient;
let keys: string[];
let id: SandboxId;
beforeAll(async () => {
  server = await startTestServer();
  admin = new ApiClient(server.url, server.key);
  const made = ["one", "two"].map((name) => admin.ask<KeyCreated>("POST", "/keys", { name, ownOnly: false }));
  keys = (await Promise.all(made)).map(({ body }) => body.secret);
});
afterAll(() => server.dispose());

const named = { "x-atoll-holder": "build-7" };
/** Returns a client with the holder's key (0) or the other key (1), with or without the holder's name. */
const as = (key: 0 | 1, headers: Record<string, string> = {}): ApiClient =>
  admin.as("", { authorization: `Bearer ${keys[key] ?? ""}`, ...headers });

beforeEach(async () => {
  ({ id } = (await admin.create()).sandbox);
});

async function hold(): Promise<void> {
  const { status } = await as(0).ask("POST", `/sandboxes/${id}/hold`, { holder: "build-7" });
  expect(status).toBe(200);
}

async function sign(api: ApiClient, method: "GET" | "PUT"): Promise<string> {
  const request = { path: "/home/user/f", method };
  const { body } = await api.ask<{ url: string }>("POST", `/sandboxes/${id}/files/sign`, request);
  return body.url;
}

test("neither the key alone nor the name alone gives access", async () => {
  await hold();
  for (const api of [as(1), as(1, named), as(0), admin, admin.as(server.key, named)]) {
    const answer = await api.ask("POST", `/sandboxes/${id}/commands`, { argv: ["true"] });
    expect(answer).toMatchObject({ status: 409, body: { error: { code: "in_use" } } });
    const stolen = await api.ask("POST", `/sandboxes/${id}/hold`, { holder: "build-8" });
    expect(stolen.body.error?.code).toBe("in_use");
  }
  expect((await as(1).ask("DELETE", `/sandboxes/${id}/hold?holder=build-7`)).body.error?.code).toBe("in_use");
  expect((await as(0, named).run(id, { shell: "echo mine" })).stdout).toBe("mine\n");
  expect((await as(0).ask("DELETE", `/sandboxes/${id}/hold?holder=build-7`)).status).toBe(200);
  expect((await as(1).run(id, { shell: "echo ours" })).stdout).toBe("ours\n");
});

test("a held sandbox can be killed by its holder or by an admin", async () => {
  await hold();
  for (const api of [as(0), as(1), as(1, named)]) {
    expect((await api.ask("DELETE", `/sandboxes/${id}`)).body.error?.code).toBe("in_use");
  }
  expect((await as(0, named).ask("DELETE", `/sandboxes/${id}`)).body).toEqual({ killed: true });
  ({ id } = (await admin.create()).sandbox);
  await hold();
  expect((await admin.ask("DELETE", `/sandboxes/${id}`)).body).toEqual({ killed: true });
});

test("URLs that others signed do not work during a hold, and the holder's do", async () => {
  const [put, get] = [await sign(as(1), "PUT"), await sign(as(1), "GET")];
  expect((await fetch(put, { method: "PUT", body: "theirs" })).status).toBe(204);
  await hold();
  expect((await fetch(put, { method: "PUT", body: "theirs again" })).status).toBe(409);
  expect((await fetch(get)).status).toBe(409);
  const own = await sign(as(0, named), "GET");
  expect(await (await fetch(own)).text()).toBe("theirs");
  await as(0).ask("DELETE", `/sandboxes/${id}/hold?holder=build-7`);
  expect((await fetch(get)).status).toBe(200);
});

test("a WebSocket may watch and write only for the holder", async () => {
  await hold();
  const command = (await as(0, named).run(id, { shell: "cat", stdin: true, background: true })).command;
  for (const [key, code] of [
    [1, "in_use"],
    [0, undefined],
  ] as const) {
    const socket = await RawWebSocket.open(server.url);
    socket.send({ type: "hello", version: 1, key: keys[key] ?? "", holder: "build-7" });
    socket.send({ type: "watch", channel: 1, sandboxId: id, path: "/home/user" });
    if (code === undefined) await socket.until("watching", 1);
    else expect((await socket.until("error", 1)).error.code).toBe(code);
    socket.send({ type: "follow", channel: 2, sandboxId: id, commandId: command.id });
    socket.send({ type: "stdin_end", channel: 2, offset: 0 });
    if (code === undefined) await socket.until("ended", 2);
    else expect((await socket.until("error", 2)).error.code).toBe(code);
    await socket.close();
  }
});
