import { EventEmitter } from "node:events";
import { PassThrough } from "node:stream";
import type { AuditEntry } from "@atoll/guard";
import { binaryHeader, SandboxError, type ServerMessage } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import type { WebSocket } from "ws";
import { Connection, type ConnectionOptions } from "../../src/websocket/connection.ts";

/** A client whose connection accepts everything and sends nothing until it is flushed. */
class Stuck extends EventEmitter {
  readonly OPEN = 1;
  readyState = 1;
  bufferedAmount = 0;
  sent: ServerMessage[] = [];
  #flushes: (() => void)[] = [];

  send(data: string, done: () => void): void {
    this.sent.push(JSON.parse(data) as ServerMessage);
    this.bufferedAmount += data.length;
    this.#flushes.push(done);
  }

  flush(): void {
    this.bufferedAmount = 0;
    for (const done of this.#flushes.splice(0)) done();
  }

  terminate(): void {
    this.readyState = 3;
    this.emit("close");
  }

  close(): void {
    this.terminate();
  }

  say(message: object): void {
    this.emit("message", Buffer.from(JSON.stringify(message)), false);
  }

  type(channel: number, offset: number, text: string): void {
    const header = Buffer.alloc(binaryHeader.bytes);
    header.writeUInt8(binaryHeader.kinds.stdin, 0);
    header.writeUInt32LE(channel, 1);
    header.writeBigUInt64LE(BigInt(offset), 13);
    this.emit("message", Buffer.concat([header, Buffer.from(text)]), true);
  }
}

function connected(sources: Partial<ConnectionOptions["sources"]> = {}, audit: AuditEntry[] = []): Stuck {
  const client = new Stuck();
  const principal = { kind: "key", key: { id: "key1", verbs: ["admin"] } };
  const authenticator = { admit: () => principal, authenticate: () => principal, untilRevoked: () => undefined };
  const own = {
    authenticator,
    sources,
    audit: (entry: AuditEntry) => audit.push(entry),
    assertSees: () => undefined,
    locate: async () => undefined,
  };
  const options = { ...own, heartbeatMs: 60_000, maxChannels: 10_000, serverId: "test" };
  const socket = client as unknown as WebSocket;
  expect(new Connection(socket, new PassThrough(), options as unknown as ConnectionOptions)).toBeDefined();
  client.say({ type: "hello", version: 1, key: "x" });
  return client;
}

test("a client that asks without end and reads no reply is disconnected", () => {
  const client = connected();
  client.bufferedAmount = 7.9 * 1024 * 1024;
  for (let id = 0; client.readyState === client.OPEN && id < 1_000_000; id += 1) client.say({ type: "ping", id });
  expect(client.readyState).not.toBe(client.OPEN);
  expect(client.bufferedAmount).toBeLessThan(9 * 1024 * 1024);
});

test("a thousand channels that are not read fill the socket no more than one", async () => {
  const host = "x".repeat(64 * 1024);
  const client = connected({
    events: async function* () {
      for (let cursor = 1; ; cursor += 1) yield { cursor, type: "egress.allowed", host } as never;
    },
  });
  for (let channel = 1; channel <= 1_000; channel += 1) client.say({ type: "events", channel });
  await expect.poll(() => client.bufferedAmount).toBeGreaterThan(1024 * 1024);
  await new Promise((resolve) => setImmediate(resolve));
  expect(client.bufferedAmount).toBeLessThan(2 * 1024 * 1024);
  const before = client.sent.length;
  client.flush();
  await expect.poll(() => client.sent.length).toBeGreaterThan(before);
  client.terminate();
});

describe("the audit log of a channel", () => {
  const sandboxId = "s".repeat(20);
  const commandId = `cmd${"c".repeat(20)}`;
  const forever = (): Promise<never> => new Promise(() => undefined);
  const command = {
    isRunning: true,
    info: () => ({}),
    assertNotRolledBack: () => undefined,
    knownOffset: () => 0,
    inputAccepted: forever,
    follow: () => ({ [Symbol.asyncIterator]: () => ({ next: forever }) }),
    writeStdin: async (data: Buffer, { offset = 0 }) => offset + data.byteLength,
    closeStdin: async ({ offset = 0 }) => offset,
    signal: async () => undefined,
    resize: async () => undefined,
  };
  const sources = (more: Partial<ConnectionOptions["sources"]> = {}): Partial<ConnectionOptions["sources"]> => ({
    isHere: () => true,
    assertNotHeld: () => undefined,
    wake: async () => undefined,
    command: () => command as never,
    ...more,
  });
  const about = { who: "key1", sandboxId, durationMs: expect.any(Number) as number };
  const params = { id: sandboxId, commandId };

  test("has input once at its end, each signal, and no resize", async () => {
    const audit: AuditEntry[] = [];
    const client = connected(sources(), audit);
    client.say({ type: "follow", channel: 1, sandboxId, commandId });
    for (const [offset, text] of "secret".split("").entries()) client.type(1, offset, text);
    client.say({ type: "stdin_end", channel: 1, offset: 6 });
    client.say({ type: "resize", channel: 1, rows: 10, cols: 10 });
    client.say({ type: "signal", channel: 1, signal: "SIGINT" });
    client.say({ type: "signal", channel: 1, signal: "SIGTERM" });
    await expect.poll(() => client.sent.filter(({ type }) => type === "stdin_accepted").length).toBe(7);
    expect(audit.slice(0, 2)).toEqual([
      { ...about, what: "signalCommand", result: "ok", details: { ...params, signal: "SIGINT" } },
      { ...about, what: "signalCommand", result: "ok", details: { ...params, signal: "SIGTERM" } },
    ]);
    expect(audit.slice(2)).toEqual([
      { ...about, what: "writeStdin", result: "started", bytesIn: 1, details: params },
      { ...about, what: "closeStdin", result: "started", bytesIn: 0, details: params },
    ]);
    client.say({ type: "close", channel: 1 });
    await expect.poll(() => audit.length).toBe(6);
    expect(audit.slice(4)).toEqual([
      { ...about, what: "writeStdin", result: "ok", bytesIn: 6, details: { ...params, messages: 6 } },
      { ...about, what: "closeStdin", result: "ok", bytesIn: 0, details: { ...params, messages: 1 } },
    ]);
    client.terminate();
    expect(audit).toHaveLength(6);
  });

  test("has refused actions, and actions that the client's leave interrupted", async () => {
    const audit: AuditEntry[] = [];
    const held = new SandboxError("in_use", "Cannot control it: another holds it");
    let isHeld = true;
    const assertNotHeld = (): void => {
      if (isHeld) throw held;
    };
    const writeStdin = (_: Buffer, { signal }: { signal: AbortSignal }): Promise<never> =>
      new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
    const client = connected(sources({ assertNotHeld, command: () => ({ ...command, writeStdin }) as never }), audit);
    client.say({ type: "follow", channel: 1, sandboxId, commandId });
    client.say({ type: "signal", channel: 1, signal: "SIGKILL" });
    await expect.poll(() => audit.map(({ what, result }) => [what, result])).toEqual([["signalCommand", "in_use"]]);
    client.say({ type: "follow", channel: 1, sandboxId, commandId });
    client.type(1, 0, "x");
    await expect.poll(() => audit.at(1)).toMatchObject({ what: "writeStdin", result: "in_use" });
    isHeld = false;
    client.say({ type: "follow", channel: 1, sandboxId, commandId });
    client.type(1, 0, "xyz");
    await new Promise((resolve) => setImmediate(resolve));
    client.terminate();
    await expect.poll(() => audit.at(2)).toMatchObject({ what: "writeStdin", result: "client left", bytesIn: 3 });
  });

  test("has one line for the surplus of a flood of signals", async () => {
    const audit: AuditEntry[] = [];
    const client = connected(sources(), audit);
    client.say({ type: "follow", channel: 1, sandboxId, commandId });
    for (let sent = 0; sent < 1_000; sent += 1) client.say({ type: "signal", channel: 1, signal: "SIGWINCH" });
    await expect.poll(() => audit.length).toBe(100);
    client.terminate();
    await expect.poll(() => audit.length).toBe(101);
    expect(audit.at(-1)).toMatchObject({ what: "signalCommand", result: "ok", details: { messages: 900 } });
  });

  test.for([
    { where: "here", isHere: true },
    { where: "on its way here", isHere: false },
  ])("has a refused watch, of a sandbox that is $where", async ({ isHere }) => {
    const audit: AuditEntry[] = [];
    const refuse = (): never => {
      throw new SandboxError("in_use", "Cannot use it: another client holds it");
    };
    const client = connected(sources({ isHere: () => isHere, assertNotHeld: refuse, acquire: refuse }), audit);
    client.say({ type: "watch", channel: 1, sandboxId, path: "/" });
    await expect.poll(() => client.sent.at(-1)?.type).toBe("error");
    const { durationMs: _, ...line } = about;
    expect(audit).toEqual([{ ...line, what: "watchFiles", result: "in_use", details: { id: sandboxId } }]);
    client.terminate();
  });

  test("has a watch at its end", async () => {
    const audit: AuditEntry[] = [];
    const follow = (_files: unknown, _request: unknown, signal: AbortSignal): unknown => ({
      id: "w",
      messages: {
        [Symbol.asyncIterator]: () => ({
          next: () =>
            new Promise((resolve) => signal.addEventListener("abort", () => resolve({ done: true, value: undefined }))),
        }),
      },
    });
    const watches = { follow } as never;
    const client = connected(sources({ watches, files: () => ({}) as never, retain: () => () => undefined }), audit);
    client.say({ type: "watch", channel: 1, sandboxId, path: "/" });
    await expect.poll(() => client.sent.at(-1)?.type).toBe("watching");
    expect(audit).toEqual([]);
    client.say({ type: "close", channel: 1 });
    await expect
      .poll(() => audit)
      .toEqual([{ ...about, what: "watchFiles", result: "ok", details: { id: sandboxId } }]);
    client.terminate();
  });
});
