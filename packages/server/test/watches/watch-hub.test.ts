import type { WatchEvent } from "@atoll/engine";
import { SandboxId, type WatchMessage } from "@atoll/protocol";
import { afterEach, expect, test } from "vitest";
import { WatchHub } from "../../src/watches/watch-hub.ts";

const request = { sandboxId: SandboxId.parse("a".repeat(20)), path: "/w", user: "user", recursive: false };
const hubs: WatchHub[] = [];
afterEach(() => {
  for (const hub of hubs.splice(0)) hub.close();
});

function makeHub(graceMs = 60_000): WatchHub {
  const hub = new WatchHub({ graceMs });
  hubs.push(hub);
  return hub;
}

/** Files whose changes the test makes, and which count their watches. */
class FakeFiles {
  #emit: ((path: string) => void)[] = [];
  open = 0;

  change(path: string): void {
    for (const emit of this.#emit) emit(path);
  }

  async *watch(_path: string, { signal }: { signal?: AbortSignal } = {}): AsyncGenerator<WatchEvent, void, void> {
    const waiting: string[] = [];
    let wake = (): void => undefined;
    this.#emit.push((path) => {
      waiting.push(path);
      wake();
    });
    signal?.addEventListener("abort", () => wake());
    this.open += 1;
    try {
      yield { cursor: 1, kind: "watching", isDirectory: true, cookie: 0, path: "" };
      for (let cursor = 2; ; cursor += 1) {
        if (signal?.aborted === true) return;
        const path = waiting.shift();
        if (path !== undefined) yield { cursor, kind: "created", isDirectory: false, cookie: 0, path };
        else {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
      }
    } finally {
      this.open -= 1;
    }
  }
}

async function take(messages: AsyncIterable<WatchMessage>, count: number): Promise<WatchMessage[]> {
  const seen: WatchMessage[] = [];
  for await (const message of messages) {
    seen.push(message);
    if (seen.length === count) break;
  }
  return seen;
}

test("a follower that returns gets what happened in between, from the same watch", async () => {
  const files = new FakeFiles();
  const hub = makeHub();
  const first = hub.follow(files, request, new AbortController().signal);
  const [watching] = await take(first.messages, 1);
  files.change("a");
  files.change("b");
  const again = hub.follow(
    files,
    { ...request, watch: first.id, cursor: watching?.cursor },
    new AbortController().signal,
  );
  expect(again.id).toBe(first.id);
  expect((await take(again.messages, 2)).map(({ path }) => path)).toEqual(["a", "b"]);
  expect(files.open).toBe(1);
});

test("a watch that has ended is replaced by one that begins with lost", async () => {
  const hub = makeHub();
  const { id, messages } = hub.follow(
    new FakeFiles(),
    { ...request, watch: "gone", cursor: 7 },
    new AbortController().signal,
  );
  expect(id).not.toBe("gone");
  expect((await take(messages, 2)).map(({ kind }) => kind)).toEqual(["lost", "watching"]);
});

test("a watch of something else is not continued", async () => {
  const files = new FakeFiles();
  const hub = makeHub();
  const first = hub.follow(files, request, new AbortController().signal);
  const other = hub.follow(files, { ...request, path: "/other", watch: first.id }, new AbortController().signal);
  expect(other.id).not.toBe(first.id);
});

test("a watch without followers ends after a while", async () => {
  const files = new FakeFiles();
  const hub = makeHub(10);
  const leaving = new AbortController();
  await take(hub.follow(files, request, leaving.signal).messages, 1);
  leaving.abort();
  await expect.poll(() => files.open).toBe(0);
});

test("a watch with long paths keeps fewer messages: its memory is bounded", async () => {
  const files = new FakeFiles();
  const hub = makeHub();
  const { id, messages } = hub.follow(files, request, new AbortController().signal);
  await take(messages, 1);
  for (let count = 0; count < 1_000; count += 1) files.change(`${count} `.padEnd(8_000, "x"));
  const last = hub.follow(files, request, new AbortController().signal);
  await take(last.messages, 1);
  await new Promise((resolve) => setImmediate(resolve));
  const leave = new AbortController();
  const seen: WatchMessage[] = [];
  for await (const message of hub.follow(files, { ...request, watch: id, cursor: 1 }, leave.signal).messages) {
    seen.push(message);
    if (message.path.startsWith("999 ")) break;
  }
  expect(seen[0]?.kind).toBe("lost");
  expect(seen.length - 1).toBeLessThan((2 * 1024 * 1024) / 16_000);
  expect(seen.slice(1).map(({ path }) => parseInt(path, 10))).toEqual(
    Array.from({ length: seen.length - 1 }, (_, index) => 1_000 - (seen.length - 1) + index),
  );
});

test("messages that are dropped while a follower handles a loss are reported too", async () => {
  const files = new FakeFiles();
  const hub = makeHub();
  const { id, messages } = hub.follow(files, request, new AbortController().signal);
  await take(messages, 1);
  const settle = async (): Promise<void> => {
    await take(hub.follow(files, request, new AbortController().signal).messages, 1);
    await new Promise((resolve) => setImmediate(resolve));
  };
  const change = async (): Promise<void> => {
    for (let count = 0; count < 5_000; count += 1) files.change("file");
    await settle();
  };
  await change();
  const again = hub.follow(files, { ...request, watch: id, cursor: 1 }, new AbortController().signal).messages;
  const reader = again[Symbol.asyncIterator]();
  const first = await reader.next();
  await change();
  const second = await reader.next();
  const third = await reader.next();
  expect([first, second, third].map(({ value }) => (value as WatchMessage).kind)).toEqual(["lost", "lost", "created"]);
  expect((third.value as WatchMessage).cursor).toBe((second.value as WatchMessage).cursor + 1);
  await reader.return?.();
});

test("a follower that is too far behind gets a loss, and then the rest", async () => {
  const files = new FakeFiles();
  const hub = makeHub();
  const { id, messages } = hub.follow(files, request, new AbortController().signal);
  await take(messages, 1);
  for (let count = 0; count < 5_000; count += 1) files.change(`file ${count}`);
  const later = hub.follow(files, request, new AbortController().signal);
  await take(later.messages, 1);
  await new Promise((resolve) => setImmediate(resolve));
  const again = hub.follow(files, { ...request, watch: id, cursor: 1 }, new AbortController().signal);
  const seen = await take(again.messages, 4_000);
  expect(seen[0]?.kind).toBe("lost");
  expect(seen.at(-1)?.path).toMatch(/^file \d+$/);
});
