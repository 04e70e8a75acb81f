import type { OutputEvent } from "@atoll/host";
import { describe, expect, test } from "vitest";
import { OutputQueue } from "../../src/guest/output-queue.ts";

/** Makes a queue with a window of 8 KiB, the list of its acknowledgements, and a function that fills it. */
function makeQueue({ startAt = 0, windowBytes = 8192 } = {}): {
  queue: OutputQueue;
  acks: number[];
  push: (data: Buffer | string, stream?: OutputEvent["stream"]) => void;
} {
  const acks: number[] = [];
  const queue = new OutputQueue(startAt, windowBytes, (at) => acks.push(at));
  const offsets = { stdout: startAt, stderr: 0 };
  const push = (data: Buffer | string, stream: OutputEvent["stream"] = "stdout"): void => {
    const bytes = Buffer.from(data);
    queue.push({ stream, data: bytes, offset: offsets[stream], at: queue.receivedAt });
    offsets[stream] += bytes.byteLength;
  };
  return { queue, acks, push };
}

async function readAll(queue: OutputQueue): Promise<string> {
  let text = "";
  for await (const { data } of queue) text += data.toString("latin1");
  return text;
}

function makeGate(): { opened: Promise<void>; open: () => void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open: () => open() };
}

/** Lets pending work run until it waits. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("reading", () => {
  test("events come in the order of their arrival, whatever the stream", async () => {
    const { queue, push } = makeQueue();
    push("a");
    push("b", "stderr");
    push("c");
    queue.finish();
    const events: OutputEvent[] = [];
    for await (const event of queue) events.push(event);
    expect(events.map(({ stream, data, offset, at }) => [stream, data.toString(), offset, at])).toEqual([
      ["stdout", "a", 0, 0],
      ["stderr", "b", 0, 1],
      ["stdout", "c", 1, 2],
    ]);
  });

  test("a reader that was there first gets what comes later", async () => {
    const { queue, push } = makeQueue();
    const read = readAll(queue);
    await settled();
    push("one ");
    await settled();
    push("two");
    queue.finish();
    expect(await read).toBe("one two");
  });

  test("a second iterator is refused", () => {
    const { queue } = makeQueue();
    queue[Symbol.asyncIterator]();
    expect(() => queue[Symbol.asyncIterator]()).toThrow("one reader");
  });

  test("what is pushed after the end is dropped", async () => {
    const { queue, push } = makeQueue();
    push("before");
    queue.finish();
    push("after");
    expect(await readAll(queue)).toBe("before");
  });

  test("after a failure the reader gets what had arrived, then the error", async () => {
    const { queue, push } = makeQueue();
    push("before");
    queue.fail(new Error("it is gone"));
    const events = queue[Symbol.asyncIterator]();
    expect(await events.next()).toMatchObject({ value: { data: Buffer.from("before") } });
    await expect(events.next()).rejects.toThrow("it is gone");
  });

  test("a failure after the end does not change the end", async () => {
    const { queue, push } = makeQueue();
    push("all");
    queue.finish();
    queue.fail(new Error("too late to matter"));
    expect(await readAll(queue)).toBe("all");
  });

  test("discard ends the wait of a reader", async () => {
    const { queue } = makeQueue();
    const read = readAll(queue);
    await settled();
    queue.discard();
    expect(await read).toBe("");
  });
});

describe("acknowledging", () => {
  test("an event counts as taken when the next one is requested", async () => {
    const { queue, acks, push } = makeQueue();
    push(Buffer.alloc(5000));
    const events = queue[Symbol.asyncIterator]();
    await events.next();
    expect(acks).toEqual([]);
    void events.next();
    await settled();
    expect(acks).toEqual([5000]);
  });

  test("a busy reader acknowledges once per quarter of the window", async () => {
    const { queue, acks, push } = makeQueue();
    // The streams alternate, so that each chunk stays an event of its own.
    for (let index = 0; index < 8; index += 1) push(Buffer.alloc(1000), index % 2 === 0 ? "stdout" : "stderr");
    const events = queue[Symbol.asyncIterator]();
    for (let index = 0; index < 8; index += 1) await events.next();
    expect(acks).toEqual([3000, 6000]);
  });

  test("a reader that waits acknowledges smaller amounts, so that no window can stay full", async () => {
    const { queue, acks, push } = makeQueue({ windowBytes: 1024 * 1024 });
    const read = readAll(queue);
    push(Buffer.alloc(1023));
    await settled();
    expect(acks).toEqual([]);
    push(Buffer.alloc(1));
    await settled();
    expect(acks).toEqual([1024]);
    queue.discard();
    await read;
  });

  test("discarded output is acknowledged in the same amounts, and no window stays full", () => {
    const { queue, acks, push } = makeQueue({ windowBytes: 1024 * 1024 });
    push(Buffer.alloc(500));
    queue.discard();
    expect(acks).toEqual([]);
    push(Buffer.alloc(600));
    push(Buffer.alloc(3000));
    expect(acks).toEqual([1100, 4100]);
  });

  test("leaving the loop throws the rest away, and what comes later too", async () => {
    const { queue, acks, push } = makeQueue();
    push(Buffer.alloc(3000));
    push(Buffer.alloc(3000), "stderr");
    for await (const _ of queue) break;
    expect(acks.at(-1)).toBe(6000);
    push(Buffer.alloc(2000));
    expect(acks.at(-1)).toBe(8000);
  });

  test("without a reader nothing is acknowledged", () => {
    const { acks, push } = makeQueue();
    push(Buffer.alloc(8192));
    expect(acks).toEqual([]);
  });

  test("counting begins where the reader begins", async () => {
    const { queue, acks, push } = makeQueue({ startAt: 100_000 });
    expect(queue.receivedAt).toBe(100_000);
    push(Buffer.alloc(4096));
    queue.finish();
    await readAll(queue);
    expect(acks).toEqual([104_096]);
  });
});

describe("consuming", () => {
  test("every piece comes once, in the order of its arrival, until the end", async () => {
    const { queue, push } = makeQueue();
    const seen: [string, string, number, number][] = [];
    push("a");
    push("b", "stderr");
    const consumed = queue.consume(({ stream, data, offset, at }) => {
      seen.push([stream, data.toString(), offset, at]);
    });
    await settled();
    push("c");
    queue.finish();
    await consumed;
    expect(seen).toEqual([
      ["stdout", "a", 0, 0],
      ["stderr", "b", 0, 1],
      ["stdout", "c", 1, 2],
    ]);
  });

  test("a piece does not change until it was taken, whatever comes in between", async () => {
    const { queue, push } = makeQueue();
    push(Buffer.alloc(3000, "a"));
    const taken: string[] = [];
    const gate = makeGate();
    const consumed = queue.consume(async ({ data }) => {
      await gate.opened;
      taken.push(data.toString());
    });
    await settled();
    push(Buffer.alloc(1000, "b"));
    queue.finish();
    gate.open();
    await consumed;
    expect(taken.join("")).toBe("a".repeat(3000) + "b".repeat(1000));
    expect(taken[0]).toBe("a".repeat(3000));
  });

  test("a piece is acknowledged when it was taken, not before", async () => {
    const { queue, acks, push } = makeQueue();
    push(Buffer.alloc(5000));
    const gate = makeGate();
    const consumed = queue.consume(() => gate.opened);
    await settled();
    expect(acks).toEqual([]);
    gate.open();
    await settled();
    expect(acks).toEqual([5000]);
    queue.finish();
    await consumed;
  });

  test("what could not be taken is not acknowledged, nor thrown away", async () => {
    const { queue, acks, push } = makeQueue();
    push(Buffer.alloc(5000));
    push(Buffer.alloc(1000), "stderr");
    const failing = queue.consume(() => {
      throw new Error("the disk is full");
    });
    await expect(failing).rejects.toThrow("the disk is full");
    expect(acks).toEqual([]);
    expect(queue.exceedsWindow(2192)).toBe(false);
    expect(queue.exceedsWindow(2193)).toBe(true);
  });

  test("a failure comes after the output that had arrived", async () => {
    const { queue, push } = makeQueue();
    push("before");
    queue.fail(new Error("it is gone"));
    const seen: string[] = [];
    const consumed = queue.consume(({ data }) => {
      seen.push(data.toString());
    });
    await expect(consumed).rejects.toThrow("it is gone");
    expect(seen).toEqual(["before"]);
  });

  test("throwing the rest away while a piece is being taken ends it", async () => {
    const { queue, acks, push } = makeQueue();
    push(Buffer.alloc(3000));
    push(Buffer.alloc(3000), "stderr");
    let pieces = 0;
    await queue.consume(() => {
      pieces += 1;
      queue.discard();
    });
    expect(pieces).toBe(1);
    expect(acks.at(-1)).toBe(6000);
  });

  test("a second reader is refused", async () => {
    const { queue } = makeQueue();
    const consumed = queue.consume(() => undefined);
    expect(() => queue[Symbol.asyncIterator]()).toThrow("one reader");
    queue.finish();
    await consumed;
  });

  test("a flood is taken in memory of one window", async () => {
    const { queue, push } = makeQueue();
    const memory = new Set<ArrayBufferLike>();
    const consumed = queue.consume(({ data }) => {
      memory.add(data.buffer);
    });
    for (let round = 0; round < 1000; round += 1) {
      push(Buffer.alloc(5000, round));
      await settled();
    }
    queue.finish();
    await consumed;
    expect([...memory].map(({ byteLength }) => byteLength)).toEqual([8192]);
  });
});

describe("the window", () => {
  test("it is full with a window's worth beyond the acknowledged", () => {
    const { queue, push } = makeQueue();
    push(Buffer.alloc(8000));
    expect(queue.exceedsWindow(192)).toBe(false);
    expect(queue.exceedsWindow(193)).toBe(true);
  });

  test("it opens again with an acknowledgement", async () => {
    const { queue, push } = makeQueue();
    push(Buffer.alloc(8192));
    expect(queue.exceedsWindow(1)).toBe(true);
    const events = queue[Symbol.asyncIterator]();
    await events.next();
    void events.next();
    await settled();
    expect(queue.exceedsWindow(8192)).toBe(false);
    queue.discard();
  });
});

describe("memory", () => {
  test.for([
    { end: "ended", settle: (queue: OutputQueue) => queue.finish() },
    { end: "failed", settle: (queue: OutputQueue) => queue.fail(new Error("it is gone")) },
    { end: "been thrown away", settle: (queue: OutputQueue) => queue.discard() },
  ])("a stream that was read and has $end keeps none", async ({ settle }) => {
    const { queue, push } = makeQueue();
    const consumed = queue.consume(() => undefined).catch(() => undefined);
    push(Buffer.alloc(8000));
    await settled();
    expect(queue.bufferedBytes).toBe(8192);
    settle(queue);
    await consumed;
    expect(queue.bufferedBytes).toBe(0);
  });

  test("small pieces of one stream are joined, and read as they were written", async () => {
    const { queue, push } = makeQueue({ windowBytes: 1024 * 1024 });
    const text = Array.from({ length: 40_000 }, (_, index) => String.fromCharCode(97 + (index % 26))).join("");
    for (const letter of text) push(letter);
    queue.finish();
    const events: OutputEvent[] = [];
    for await (const event of queue) events.push(event);
    expect(Buffer.concat(events.map(({ data }) => data)).toString()).toBe(text);
    expect(events.length).toBeLessThan(10);
    expect(events.map(({ at }) => at)).toEqual(events.map(({ offset }) => offset));
  });

  test("an event that a reader holds does not grow any more", async () => {
    const { queue, push } = makeQueue();
    push("a");
    const events = queue[Symbol.asyncIterator]();
    const first = await events.next();
    push("b");
    expect(first.value?.data.toString()).toBe("a");
    expect((await events.next()).value).toMatchObject({ offset: 1, at: 1, data: Buffer.from("b") });
  });

  test("a small piece does not keep the large chunk that it came in", async () => {
    const { queue } = makeQueue();
    const chunk = Buffer.alloc(65_536, "x");
    queue.push({ stream: "stdout", data: chunk.subarray(100, 101), offset: 0, at: 0 });
    const { value } = await queue[Symbol.asyncIterator]().next();
    expect(value?.data.toString()).toBe("x");
    expect(value?.data.buffer.byteLength).toBe(1);
  });
});
