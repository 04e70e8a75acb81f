import { Atoll, Sandbox } from "@atoll/sdk";
import { MockServer } from "@atoll/sdk/mock";
import { expect, onTestFinished, test, vi } from "vitest";
import { faulty } from "./support/faulty-connection.ts";

const perMinute = 60;

/** A server that accepts a number of hellos and channels a minute, like one that limits the rate of a key. */
class Rated {
  readonly mock = new MockServer();
  readonly client: Atoll;
  left = perMinute;
  refusals = 0;
  taken: number[] = [];

  constructor(options: { reconnectForMs?: number } = {}) {
    const { connection } = this.mock;
    const webSocket = faulty(connection.webSocket, () => ({ onSend: (message) => this.#judge(String(message)) }));
    this.client = new Atoll({ ...connection, ...options, webSocket });
    onTestFinished(() => this.client.close());
  }

  /** Advances the clock by `ms`, in steps in which tokens come back one by one. */
  async pass(ms: number): Promise<void> {
    for (let passedMs = 0; passedMs < ms; passedMs += 1_000) {
      this.left = Math.min(perMinute, this.left + 1);
      await vi.advanceTimersByTimeAsync(1_000);
    }
  }

  #judge(text: string): "pass" | { answer: string[] } {
    const { type, channel } = JSON.parse(text) as { type: string; channel?: number };
    if (!["hello", "follow", "watch", "events"].includes(type)) return "pass";
    if (this.left > 0) {
      this.left -= 1;
      if (channel !== undefined) this.taken.push(channel);
      return "pass";
    }
    this.refusals += 1;
    const error = { code: "limit_reached", message: "Cannot ask so often", details: { retryAfterMs: 1_000 } };
    return { answer: [JSON.stringify({ type: "error", channel, error })] };
  }
}

async function settle(): Promise<void> {
  await vi.advanceTimersByTimeAsync(200);
}

function useFakeTimers(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
  onTestFinished(() => void vi.useRealTimers());
}

async function waiting(rated: Rated, count: number): Promise<Promise<number | null>[]> {
  rated.mock.onCommand("cat", async ({ stdin }) => {
    for await (const _ of stdin);
  });
  const sandbox = await Sandbox.create({ client: rated.client });
  const handles = await Promise.all(
    Array.from({ length: count }, () => sandbox.commands.run("cat", { background: true, stdin: true })),
  );
  return handles.map(async (handle) => {
    const result = handle.wait();
    await handle.closeStdin();
    return (await result).exitCode;
  });
}

test("more channels than a key may open in a minute are all served, before and after a broken connection", async () => {
  useFakeTimers();
  const rated = new Rated();
  const sandbox = await Sandbox.create({ client: rated.client });
  const streams = Array.from({ length: 80 }, () => rated.client.events({ sandboxId: sandbox.id }));
  const first = streams.map((stream) => stream.next());
  const failures: unknown[] = [];
  for (const next of first) next.catch((error: unknown) => failures.push(error));
  await settle();
  expect(rated.refusals).toBeGreaterThan(0);
  await rated.pass(30_000);
  expect(new Set(rated.taken).size).toBe(80);
  rated.taken = [];
  rated.mock.disconnect();
  await settle();
  await rated.pass(100_000);
  expect(failures).toEqual([]);
  expect(new Set(rated.taken).size).toBe(80);
  await sandbox.kill();
  await settle();
  expect((await Promise.all(first)).map(({ value }) => value?.type)).toEqual(Array(80).fill("sandbox.state"));
});

test("a connection that is refused for now waits for the given time, and its input arrives", async () => {
  useFakeTimers();
  const rated = new Rated();
  rated.left = 0;
  const [ended] = await waiting(rated, 1);
  await settle();
  expect(rated.refusals).toBe(1);
  await vi.advanceTimersByTimeAsync(700);
  expect(rated.refusals).toBe(1);
  await rated.pass(5_000);
  expect(await ended).toBe(0);
});

test("a channel that is refused for now fails with the server's error after reconnectForMs", async () => {
  useFakeTimers();
  const rated = new Rated({ reconnectForMs: 5_000 });
  rated.left = 1;
  const next = rated.client.events().next();
  next.catch(() => undefined);
  await vi.advanceTimersByTimeAsync(4_000);
  expect(rated.refusals).toBeGreaterThan(2);
  await vi.advanceTimersByTimeAsync(2_000);
  await expect(next).rejects.toMatchObject({ code: "limit_reached" });
});

test("a channel that is closed while it waits is not retried", async () => {
  useFakeTimers();
  const rated = new Rated();
  rated.left = 1;
  const stop = new AbortController();
  const next = rated.client.events({ signal: stop.signal }).next();
  next.catch(() => undefined);
  await settle();
  expect(rated.refusals).toBe(1);
  stop.abort(new Error("enough"));
  await expect(next).rejects.toThrow("enough");
  await vi.advanceTimersByTimeAsync(5_000);
  expect(rated.refusals).toBe(1);
});
