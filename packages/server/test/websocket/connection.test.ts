import { EventEmitter } from "node:events";
import { PassThrough } from "node:stream";
import type { ServerMessage } from "@atoll/protocol";
import { expect, test } from "vitest";
import type { WebSocket } from "ws";
import { Connection, type ConnectionOptions } from "../../src/websocket/connection.ts";

/** A client whose connection takes everything and passes nothing on, until it is told to. */
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
}

function connected(sources: Partial<ConnectionOptions["sources"]> = {}): Stuck {
  const client = new Stuck();
  const principal = { kind: "key", key: { verbs: ["admin"] } };
  const gate = { admit: () => principal, recognise: () => principal, untilRevoked: () => undefined };
  const options = { gate, sources, heartbeatMs: 60_000, maxChannels: 10_000, serverId: "test" };
  const socket = client as unknown as WebSocket;
  expect(new Connection(socket, new PassThrough(), options as unknown as ConnectionOptions)).toBeDefined();
  client.say({ type: "hello", version: 1, key: "x" });
  return client;
}

test("a client that asks on and on and reads no answer is let go", () => {
  const client = connected();
  client.bufferedAmount = 7.9 * 1024 * 1024;
  for (let id = 0; client.readyState === client.OPEN && id < 1_000_000; id += 1) client.say({ type: "ping", id });
  expect(client.readyState).not.toBe(client.OPEN);
  expect(client.bufferedAmount).toBeLessThan(9 * 1024 * 1024);
});

test("a thousand channels that nobody reads fill the socket no more than one", async () => {
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
