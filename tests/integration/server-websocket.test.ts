import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { binaryHeader, websocketProtocol, type CommandId, type KeyCreated, type SandboxId } from "@atoll/protocol";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { ApiClient } from "../support/api-client.ts";
import { RawWebSocket } from "../support/raw-websocket.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let api: ApiClient;
let sandboxId: SandboxId;
let token: string;
let open: RawWebSocket[] = [];
beforeAll(async () => {
  server = await startTestServer();
  api = new ApiClient(server.url, server.key);
  const created = await api.create();
  sandboxId = created.sandbox.id;
  ({ token } = created);
});
afterAll(() => server.dispose());
afterEach(async () => {
  await Promise.all(open.map((one) => one.close()));
  open = [];
});

async function greeted(hello: { key?: string; sandboxToken?: string } = { key: server.key }): Promise<RawWebSocket> {
  const socket = await RawWebSocket.greeted(server.url, hello);
  open.push(socket);
  return socket;
}

async function start(shell: string, options: Record<string, unknown> = {}): Promise<CommandId> {
  return (await api.start(sandboxId, { shell, ...options })).id;
}

/** Reads one channel to its end and acknowledges everything. */
async function readAll(socket: RawWebSocket, channel: number): Promise<{ output: Buffer; exitCode: number | null }> {
  const pieces: Buffer[] = [];
  for (;;) {
    const received = await socket.next();
    if (received === undefined) throw new Error("The connection ended");
    if ("kind" in received && received.channel === channel) {
      pieces.push(received.bytes);
      socket.send({ type: "ack", channel, at: received.at + received.bytes.byteLength });
    } else if ("type" in received && received.type === "ended" && received.channel === channel) {
      return { output: Buffer.concat(pieces), exitCode: received.command.exitCode };
    } else if ("type" in received && received.type === "error") throw new Error(JSON.stringify(received));
  }
}

test("actions over a WebSocket are in the audit log, without the input", async () => {
  const commandId = await start("cat >/dev/null; sleep 1000", { stdin: true });
  const socket = await greeted();
  socket.send({ type: "follow", channel: 1, sandboxId, commandId });
  socket.sendStdin(1, 0, "hush ");
  socket.sendStdin(1, 5, "hush");
  socket.send({ type: "stdin_end", channel: 1, offset: 9 });
  while (!(await socket.until("stdin_accepted", 1)).isEnd);
  socket.send({ type: "signal", channel: 1, signal: "SIGKILL" });
  await readAll(socket, 1);
  const audited = async (): Promise<unknown[]> => {
    const text = await readFile(join(server.dataDir, "audit", "audit.jsonl"), "utf8");
    expect(text).not.toContain("hush");
    const lines = text.split("\n").filter((line) => line.includes(commandId) && !line.includes("runCommand"));
    return lines.map((line) => JSON.parse(line) as unknown);
  };
  const about = { who: server.key.split("_")[1], sandboxId, result: "ok" };
  await expect.poll(audited).toMatchObject([
    { ...about, what: "writeStdin", result: "started", bytesIn: 5, details: { commandId } },
    { ...about, what: "closeStdin", result: "started", details: { commandId } },
    { ...about, what: "signalCommand", details: { commandId, signal: "SIGKILL" } },
    { ...about, what: "writeStdin", bytesIn: 9, details: { commandId } },
    { ...about, what: "closeStdin", details: { commandId } },
  ]);
});

describe.for(["gvisor", "local"] as const)("a command over a WebSocket, in %s", (driver) => {
  let usual: SandboxId;
  beforeAll(async () => {
    usual = sandboxId;
    sandboxId = (await api.create({ driver })).sandbox.id;
  });
  afterAll(async () => {
    await api.ask("DELETE", `/sandboxes/${sandboxId}`);
    sandboxId = usual;
  });

  test("is followed from any byte to its end", async () => {
    const commandId = await start("echo out; echo err >&2; exit 3");
    const socket = await greeted();
    socket.send({ type: "follow", channel: 7, sandboxId, commandId });
    expect((await readAll(socket, 7)).exitCode).toBe(3);
    socket.send({ type: "follow", channel: 8, sandboxId, commandId, from: 6 });
    const { output } = await readAll(socket, 8);
    expect(output.byteLength).toBe(2);
  });

  test("gets its input once and in order, however often it is sent", async () => {
    const commandId = await start("cat; exit 4", { stdin: true });
    const first = await greeted();
    first.send({ type: "follow", channel: 1, sandboxId, commandId });
    first.sendStdin(1, 0, "one ");
    expect(await first.until("stdin_accepted", 1)).toMatchObject({ offset: 4 });
    await first.close();
    const second = await greeted();
    second.send({ type: "follow", channel: 1, sandboxId, commandId });
    second.sendStdin(1, 0, "one two ");
    second.sendStdin(1, 8, "three");
    second.send({ type: "stdin_end", channel: 1, offset: 13 });
    expect(await readAll(second, 1)).toEqual({ output: Buffer.from("one two three"), exitCode: 4 });
  });

  test("in a terminal is resized, and ended by a signal", async () => {
    const commandId = await start("trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; done", {
      pty: { rows: 24, cols: 80 },
    });
    const socket = await greeted();
    socket.send({ type: "follow", channel: 1, sandboxId, commandId });
    for (let text = ""; !text.includes("ready");) {
      const received = await socket.next();
      if (received !== undefined && "kind" in received) text += received.bytes.toString();
    }
    socket.send({ type: "resize", channel: 1, rows: 50, cols: 132 });
    const { output, exitCode } = await readAll(socket, 1);
    expect(output.toString()).toContain("50 132");
    expect(exitCode).toBe(5);
    const other = await start("sleep 1000");
    socket.send({ type: "follow", channel: 2, sandboxId, commandId: other });
    socket.send({ type: "signal", channel: 2, signal: "SIGTERM" });
    expect((await socket.until("ended", 2)).command).toMatchObject({ signal: "SIGTERM", exitCode: null });
  });

  test("waits for a reader that does not acknowledge, and blocks no other channel", async () => {
    const bytes = 3 * 1024 * 1024;
    const commandId = await start(`head -c ${bytes} /dev/zero`);
    await api.ask("GET", `/sandboxes/${sandboxId}/commands/${commandId}/wait`);
    const socket = await greeted();
    socket.send({ type: "follow", channel: 1, sandboxId, commandId });
    const quick = await start("echo quick");
    let received = 0;
    let last = 0;
    const take = async (): Promise<void> => {
      const next = await socket.next();
      if (next !== undefined && "kind" in next && next.channel === 1) {
        received += next.bytes.byteLength;
        last = next.at + next.bytes.byteLength;
      }
    };
    const has = (wanted: number): boolean => received >= wanted;
    while (!has(websocketProtocol.windowBytes)) await take();
    socket.send({ type: "follow", channel: 2, sandboxId, commandId: quick });
    await socket.until("ended", 2);
    socket.send({ type: "ping", id: 1 });
    await socket.until("pong");
    expect(received).toBe(websocketProtocol.windowBytes);
    while (!has(bytes)) {
      socket.send({ type: "ack", channel: 1, at: last });
      await take();
    }
    await socket.until("ended", 1);
    expect(received).toBe(bytes);
  });

  test("goes on when its client's connection breaks", async () => {
    const commandId = await start("read line; exit 6", { stdin: true });
    const socket = await greeted();
    socket.send({ type: "follow", channel: 1, sandboxId, commandId });
    await socket.until("following");
    socket.socket.terminate();
    const again = await greeted();
    again.send({ type: "follow", channel: 1, sandboxId, commandId });
    again.send({ type: "stdin_end", channel: 1, offset: 0 });
    expect((await again.until("ended")).command.exitCode).toBe(6);
  });
});

test("watches and events use the same connection", async () => {
  const socket = await greeted();
  socket.send({ type: "events", channel: 2, sandboxId });
  expect((await socket.until("passed", 2)).cursor).toBeGreaterThan(0);
  socket.send({ type: "watch", channel: 1, sandboxId, path: "/home/user" });
  const { watch } = await socket.until("watching");
  let event = (await socket.until("changed")).event;
  expect(event.kind).toBe("watching");
  await api.fetch("PUT", `/sandboxes/${sandboxId}/files?path=seen`, { body: "x" });
  while (event.path !== "seen" && !event.path.endsWith("/seen")) ({ event } = await socket.until("changed", 1));
  await api.run(sandboxId, { shell: "true" });
  expect((await socket.until("event", 2)).event).toMatchObject({ type: "command.started" });
  await socket.close();
  await api.fetch("PUT", `/sandboxes/${sandboxId}/files?path=unseen`, { body: "x" });
  const again = await greeted();
  again.send({ type: "watch", channel: 1, sandboxId, path: "/home/user", watch, cursor: event.cursor });
  expect((await again.until("watching")).watch).toBe(watch);
  for (let path = ""; !path.endsWith("unseen");) ({ path } = (await again.until("changed")).event);
});

describe("authorisation", () => {
  test("a sandbox's token may follow only commands of its sandbox", async () => {
    const other = await api.create();
    const commandId = await start("echo mine");
    const socket = await greeted({ sandboxToken: token });
    socket.send({ type: "follow", channel: 1, sandboxId, commandId });
    expect((await readAll(socket, 1)).output.toString()).toBe("mine\n");
    socket.send({ type: "follow", channel: 2, sandboxId: other.sandbox.id, commandId });
    expect((await socket.until("error", 2)).error.code).toBe("permission_denied");
    socket.send({ type: "events", channel: 3 });
    expect((await socket.until("error", 3)).error.code).toBe("permission_denied");
    await api.ask("DELETE", `/sandboxes/${other.sandbox.id}`);
  });

  test("a key that may only read can follow, and cannot write", async () => {
    const { body } = await api.ask<KeyCreated>("POST", "/keys", { name: "reader", verbs: ["read"], ownOnly: false });
    const commandId = await start("cat", { stdin: true });
    const socket = await greeted({ key: body.secret });
    socket.send({ type: "follow", channel: 1, sandboxId, commandId });
    await socket.until("following");
    socket.sendStdin(1, 0, "x");
    expect((await socket.until("error", 1)).error.code).toBe("permission_denied");
    await api.ask("DELETE", `/sandboxes/${sandboxId}/commands/${commandId}/stdin`);
  });

  test("the connection of a revoked key ends with all its channels and the reason", async () => {
    const { body } = await api.ask<KeyCreated>("POST", "/keys", { name: "short", ownOnly: false });
    const commandId = await start("cat", { stdin: true });
    const [socket, other] = [await greeted({ key: body.secret }), await greeted()];
    for (const one of [socket, other]) {
      one.send({ type: "events", channel: 1 });
      one.send({ type: "follow", channel: 2, sandboxId, commandId });
      one.send({ type: "watch", channel: 3, sandboxId, path: "/home/user" });
      await one.until("watching");
    }
    await api.ask("DELETE", `/keys/${body.key.id}`);
    const { error, channel } = await socket.until("error");
    expect({ code: error.code, channel }).toEqual({ code: "permission_denied", channel: undefined });
    await expect.poll(() => socket.closedWith).toBe(1008);
    other.send({ type: "stdin_end", channel: 2, offset: 0 });
    await other.until("ended", 2);
  });

  test("input of a followed command does not count against the rate of a key", async () => {
    const limits = { ownOnly: false, requestsPerMinute: 5 };
    const { body } = await api.ask<KeyCreated>("POST", "/keys", { name: "slow", ...limits });
    const commandId = await start("cat", { stdin: true });
    const socket = await greeted({ key: body.secret });
    socket.send({ type: "follow", channel: 1, sandboxId, commandId });
    await socket.until("following");
    for (let offset = 0; offset < 50; offset += 1) socket.sendStdin(1, offset, "x");
    socket.send({ type: "stdin_end", channel: 1, offset: 50 });
    expect((await readAll(socket, 1)).output.toString()).toBe("x".repeat(50));
  });

  test("a page of another origin is refused", async () => {
    const socket = new WebSocket(`${server.url.replace("http", "ws")}/ws`, { origin: "https://evil.example" });
    const [error] = (await once(socket, "error")) as [Error];
    expect(error.message).toContain("403");
  });
});

describe("a violation of the protocol closes the connection", () => {
  const policyViolation = 1008;
  const closing: [string, (socket: RawWebSocket) => void, number][] = [
    ["no JSON", (socket) => socket.socket.send("{"), policyViolation],
    ["an unknown message", (socket) => socket.socket.send('{"type":"dance"}'), policyViolation],
    ["an unknown field", (socket) => socket.socket.send('{"type":"ping","id":1,"x":1}'), policyViolation],
    ["a second hello", (socket) => socket.send({ type: "hello", version: 1, key: server.key }), policyViolation],
    ["bytes that are no frame", (socket) => socket.socket.send(Buffer.from("x")), policyViolation],
    ["output from a client", (socket) => socket.socket.send(Buffer.alloc(binaryHeader.bytes, 1)), policyViolation],
    ["a message that is too long", (socket) => socket.socket.send("x".repeat(2 * 1024 * 1024)), 1009],
  ];
  test.for(closing)("%s", async ([, act, code]) => {
    const socket = await greeted();
    act(socket);
    await expect.poll(() => socket.closedWith).toBe(code);
  });

  test.for<[string, string]>([
    ["a wrong key", JSON.stringify({ type: "hello", version: 1, key: "atk_x" })],
    ["no key", JSON.stringify({ type: "hello", version: 1 })],
    ["another version", JSON.stringify({ type: "hello", version: 2, key: "x" })],
    ["anything before hello", JSON.stringify({ type: "ping", id: 1 })],
  ])("%s gets the reason first", async ([, message]) => {
    const socket = await RawWebSocket.open(server.url);
    socket.socket.send(message);
    expect((await socket.until("error")).error.message).toContain("Cannot");
    await expect.poll(() => socket.closedWith).toBe(policyViolation);
  });

  test("a used channel number and too much input end only their own channel", async () => {
    const commandId = await start("sleep 1000", { stdin: true });
    const socket = await greeted();
    socket.send({ type: "follow", channel: 1, sandboxId, commandId });
    await socket.until("following");
    // The process reads nothing, so its pipe fills first.
    const piece = "x".repeat(512 * 1024);
    for (let count = 0; count < 8; count += 1) socket.sendStdin(1, count * piece.length, piece);
    expect((await socket.until("error", 1)).error.code).toBe("limit_reached");
    socket.send({ type: "ping", id: 2 });
    await socket.until("pong");
    await api.ask("POST", `/sandboxes/${sandboxId}/commands/${commandId}/signal`, { signal: "SIGKILL" });
  });
});

test("a client that answers no heartbeat is disconnected", async () => {
  await using other = await startTestServer({ flags: ["--heartbeat-ms", "200"] });
  const socket = new WebSocket(`${other.url.replace("http", "ws")}/ws`, { autoPong: false });
  await once(socket, "open");
  socket.send(JSON.stringify({ type: "hello", version: 1, key: other.key }));
  await once(socket, "close");
});

test("a server that stops sends the reason and closes the connection", async () => {
  const other = await startTestServer();
  const socket = await RawWebSocket.greeted(other.url, { key: other.key });
  const stopping = other.stop();
  await socket.until("shutdown");
  await expect.poll(() => socket.closedWith).toBe(1001);
  await stopping;
  await other.dispose();
});
