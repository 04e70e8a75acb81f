import { setTimeout as later } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { awaitFirstPiece, keepAlive, type LineTiming } from "../../src/http/keep-alive-lines.ts";

const never = new AbortController().signal;

function timing(changes: Partial<LineTiming<string>> = {}): LineTiming<string> {
  return {
    heartbeatMs: 60_000,
    heartbeat: () => "heartbeat",
    shutdown: () => "shutdown",
    refused: (reason) => `refused: ${String(reason)}`,
    stopping: never,
    signal: never,
    ...changes,
  };
}

async function* after(ms: number, ...lines: string[]): AsyncGenerator<string, void, void> {
  for (const line of lines) {
    await later(ms);
    yield line;
  }
}

/** A source that yields nothing, ever, and records when it is released. */
function silent(): AsyncIterable<string> & { isReleased: boolean } {
  const source = {
    isReleased: false,
    [Symbol.asyncIterator]: () => ({
      next: () => new Promise<IteratorResult<string>>(() => undefined),
      return: async () => {
        source.isReleased = true;
        return { done: true as const, value: undefined };
      },
    }),
  };
  return source;
}

async function all(lines: AsyncIterable<string>): Promise<string[]> {
  const seen: string[] = [];
  for await (const line of lines) seen.push(line);
  return seen;
}

describe("a stream of lines", () => {
  test("has the source's lines, in order", async () => {
    expect(await all(keepAlive(after(0, "a", "b"), timing()))).toEqual(["a", "b"]);
  });

  test("ends with the reason when its reader may not read on, also during silence", async () => {
    const revocation = new AbortController();
    const source = silent();
    const lines = all(keepAlive(source, timing({ revoked: revocation.signal })));
    revocation.abort("revoked");
    expect(await lines).toEqual(["refused: revoked"]);
    expect(source.isReleased).toBe(true);
    expect(await all(keepAlive(after(0, "a"), timing({ revoked: revocation.signal })))).toEqual(["refused: revoked"]);
  });

  test("has heartbeats when the source is quiet, and loses no line", async () => {
    let beats = 0;
    let onSecondBeat = (): void => undefined;
    const isQuietUntil = new Promise<void>((resolve) => {
      onSecondBeat = resolve;
    });
    const source = (async function* () {
      await isQuietUntil;
      yield "a";
      yield "b";
    })();
    const heartbeat = (): string => {
      beats += 1;
      if (beats === 2) onSecondBeat();
      return "heartbeat";
    };
    const seen = await all(keepAlive(source, timing({ heartbeatMs: 10, heartbeat })));
    expect(seen.filter((line) => line !== "heartbeat")).toEqual(["a", "b"]);
    expect(seen.slice(0, 2)).toEqual(["heartbeat", "heartbeat"]);
  });

  test("ends with a shutdown line when the server stops", async () => {
    const server = new AbortController();
    const source = silent();
    const lines = all(keepAlive(source, timing({ stopping: server.signal })));
    server.abort();
    expect(await lines).toEqual(["shutdown"]);
    expect(source.isReleased).toBe(true);
  });

  test("ends without a line when the reader is gone, and releases the source", async () => {
    const reader = new AbortController();
    const source = silent();
    const lines = all(keepAlive(source, timing({ signal: reader.signal })));
    reader.abort();
    expect(await lines).toEqual([]);
    expect(source.isReleased).toBe(true);
  });

  test("forwards an error of the source", async () => {
    const failing = (async function* () {
      yield "a";
      throw new Error("broken");
    })();
    await expect(all(keepAlive(failing, timing()))).rejects.toThrow("broken");
  });
});

describe("a stream whose first piece was awaited", () => {
  test("has every piece, the first one too", async () => {
    expect(await all(await awaitFirstPiece(after(0, "a", "b")))).toEqual(["a", "b"]);
    expect(await all(await awaitFirstPiece(after(0)))).toEqual([]);
  });

  test("fails at once if there is no first piece", async () => {
    const failing = { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(new Error("not there")) }) };
    await expect(awaitFirstPiece(failing)).rejects.toThrow("not there");
  });
});
