import { createHmac } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AlertSettings } from "../../src/alerts/alert-settings.ts";
import { Webhook, type WebhookOptions } from "../../src/alerts/webhook.ts";

const secret = "a secret of the receiver";

interface Received {
  headers: IncomingMessage["headers"];
  body: string;
}

/** A receiver that answers as a test wants. */
class Receiver {
  port = 0;
  readonly received: Received[] = [];
  readonly connections: Set<{ destroy: () => void }> = new Set();
  answer: (response: ServerResponse, request: IncomingMessage) => void = (response) => response.writeHead(204).end();
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      let body = "";
      request.on("data", (chunk: Buffer) => (body += chunk.toString()));
      request.on("end", () => {
        this.received.push({ headers: request.headers, body });
        this.answer(response, request);
      });
    });
    this.#server.on("connection", (socket) => {
      this.connections.add(socket);
      socket.on("close", () => this.connections.delete(socket));
    });
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.port, "127.0.0.1", resolve));
    this.port = (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/hook`;
  }

  get events(): unknown[] {
    return this.received.map(({ body }) => (JSON.parse(body) as { event: unknown }).event);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

let receiver: Receiver;
const webhooks: Webhook[] = [];
beforeEach(async () => {
  receiver = new Receiver();
  await receiver.listen();
});
afterEach(async () => {
  for (const webhook of webhooks.splice(0)) await webhook.close();
  await receiver.close();
});

function open(options: Partial<WebhookOptions> = {}): Webhook {
  const limits = { retryMs: 5, deadlineMs: 60_000, ...options.limits };
  const webhook = new Webhook({ url: receiver.url, secret, server: "here", ...options, limits });
  webhooks.push(webhook);
  return webhook;
}

const alertOf = (event: unknown): { kind: string; atMs: number; event: unknown } => ({
  kind: "limit.hit",
  atMs: 1_000,
  event,
});

test("an alert says what happened, when and where, and is signed with its time", async () => {
  const webhook = open();
  webhook.send(alertOf({ sandboxId: "sb1", limit: "memory" }));
  await expect.poll(() => webhook.counts).toEqual({ delivered: 1, failed: 0, dropped: 0, queued: 0 });
  const [{ headers, body } = { headers: {}, body: "" }] = receiver.received;
  expect(JSON.parse(body)).toEqual({
    id: headers["atoll-alert"],
    kind: "limit.hit",
    atMs: 1_000,
    server: "here",
    event: { sandboxId: "sb1", limit: "memory" },
  });
  const [, time = "", signature] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers["atoll-signature"])) ?? [];
  expect(signature).toBe(createHmac("sha256", secret).update(`${time}.${body}`).digest("hex"));
  expect(Math.abs(Date.now() / 1000 - Number(time))).toBeLessThan(120);
});

describe("a receiver that", () => {
  test("fails for a while gets every alert in order, each with one id", async () => {
    let attempts = 0;
    receiver.answer = (response) => response.writeHead((attempts += 1) <= 3 ? 503 : 200).end();
    const webhook = open();
    for (const n of [1, 2, 3]) webhook.send(alertOf(n));
    await expect.poll(() => webhook.counts.delivered).toBe(3);
    expect(receiver.events).toEqual([1, 1, 1, 1, 2, 3]);
    expect(new Set(receiver.received.slice(0, 4).map(({ headers }) => headers["atoll-alert"])).size).toBe(1);
  });

  test("is down at first gets them when it is up", async () => {
    await receiver.close();
    const problems: string[] = [];
    const webhook = open({ onProblem: (problem) => problems.push(problem) });
    webhook.send(alertOf("late"));
    await expect.poll(() => problems).toEqual([expect.stringMatching(/^an alert is retried: .*ECONNREFUSED/)]);
    await receiver.listen();
    await expect.poll(() => webhook.counts.delivered).toBe(1);
    expect(receiver.events).toEqual(["late"]);
  });

  test("never answers costs one connection and a bounded queue, and learns how many are missing", async () => {
    receiver.answer = () => undefined;
    const webhook = open({ limits: { queued: 3 } });
    for (let n = 1; n <= 50; n += 1) webhook.send(alertOf(n));
    await expect.poll(() => receiver.received.length).toBe(1);
    expect(webhook.counts).toEqual({ delivered: 0, failed: 0, dropped: 47, queued: 3 });
    expect(receiver.connections.size).toBe(1);
    receiver.answer = (response) => response.writeHead(200).end();
    for (const connection of receiver.connections) connection.destroy();
    await expect.poll(() => webhook.counts.delivered).toBe(3);
    expect(receiver.events).toEqual([1, 1, 49, 50]);
    const missing = receiver.received.map(({ body }) => (JSON.parse(body) as { missingBefore?: number }).missingBefore);
    expect(missing.slice(1)).toEqual([47, undefined, undefined]);
  });

  test("answers too late is given up after some attempts", async () => {
    receiver.answer = () => undefined;
    const problems: string[] = [];
    const limits = { deadlineMs: 30, attempts: 3 };
    const webhook = open({ limits, onProblem: (problem) => problems.push(problem) });
    webhook.send(alertOf(1));
    await expect.poll(() => webhook.counts.failed).toBe(1);
    expect(problems).toEqual([
      "an alert is retried: the receiver did not answer in time",
      "an alert was given up: the receiver did not answer in time",
    ]);
  });

  test.for([301, 302, 307, 308])("redirects with %i is not followed", async (status) => {
    const elsewhere = new Receiver();
    await elsewhere.listen();
    receiver.answer = (response) => response.writeHead(status, { location: elsewhere.url }).end();
    const webhook = open();
    webhook.send(alertOf(1));
    await expect.poll(() => webhook.counts.failed).toBe(1);
    expect([receiver.received.length, elsewhere.received.length]).toEqual([1, 0]);
    await elsewhere.close();
  });

  test("sends an endless body is not listened to", async () => {
    let sentBytes = 0;
    receiver.answer = (response) => {
      response.writeHead(200);
      const piece = Buffer.alloc(64 * 1024);
      const pour = (): void => {
        while (!response.destroyed && response.write(piece)) sentBytes += piece.byteLength;
        if (!response.destroyed) response.once("drain", pour);
      };
      response.on("error", () => undefined);
      pour();
    };
    const webhook = open();
    for (const n of [1, 2]) webhook.send(alertOf(n));
    await expect.poll(() => webhook.counts.delivered).toBe(2);
    await expect.poll(() => receiver.connections.size).toBe(0);
    expect(sentBytes).toBeLessThan(64 * 1024 * 1024);
  });

  test("sends endless headers is refused", async () => {
    receiver.answer = (response) => {
      response.socket?.write("HTTP/1.1 200 OK\r\n");
      response.socket?.write(`x: ${"y".repeat(64 * 1024)}`);
    };
    const webhook = open({ limits: { attempts: 2 } });
    webhook.send(alertOf(1));
    await expect.poll(() => webhook.counts.failed).toBe(1);
  });

  test("sends bytes that are no HTTP, or hangs up, is tried again and then given up", async () => {
    receiver.answer = (response) => response.socket?.end(receiver.received.length % 2 === 0 ? "nonsense\r\n\r\n" : "");
    const webhook = open({ limits: { attempts: 4 } });
    webhook.send(alertOf(1));
    await expect.poll(() => webhook.counts.failed).toBe(1);
    expect(receiver.received).toHaveLength(4);
  });

  test("refuses an alert does not keep the next one away, which says that one is missing", async () => {
    receiver.answer = (response) => response.writeHead(receiver.received.length === 1 ? 400 : 200).end();
    const webhook = open();
    for (const n of [1, 2]) webhook.send(alertOf(n));
    await expect.poll(() => webhook.counts).toEqual({ delivered: 1, failed: 1, dropped: 0, queued: 0 });
    expect(JSON.parse(receiver.received[1]?.body ?? "{}")).toMatchObject({ event: 2, missingBefore: 1 });
  });
});

test("closing ends the attempt under way, and counts what was not delivered", async () => {
  receiver.answer = () => undefined;
  const webhook = open();
  for (const n of [1, 2, 3]) webhook.send(alertOf(n));
  await expect.poll(() => receiver.received.length).toBe(1);
  expect(await webhook.close()).toEqual({ delivered: 0, failed: 0, dropped: 3, queued: 0 });
  webhook.send(alertOf(4));
  expect(webhook.counts.queued).toBe(0);
});

test.for([
  ["another protocol", { url: "ftp://example.com/x" }],
  ["no URL", { url: "example.com" }],
  ["a short secret", { secret: "short" }],
  ["an unknown kind", { kinds: ["everything"] }],
  ["no kind", { kinds: [] }],
])("settings with %s are refused", ([, wrong]) => {
  const right = { url: "https://example.com/hook", secret };
  expect(AlertSettings.safeParse(right).success).toBe(true);
  expect(AlertSettings.safeParse({ ...right, ...(wrong as object) }).success).toBe(false);
});
