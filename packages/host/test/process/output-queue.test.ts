import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { OutputQueue } from "../../src/process/output-queue.ts";

async function bytesOf(queue: OutputQueue): Promise<number> {
  let bytes = 0;
  for await (const { data } of queue) bytes += data.length;
  return bytes;
}

test("the end does not wait for a writer that never stops", async () => {
  const queue = new OutputQueue(1_000_000);
  queue.addSource(
    "stdout",
    new Readable({
      read() {
        setImmediate(() => this.push(Buffer.alloc(65_536)));
      },
    }),
  );
  const read = bytesOf(queue);
  await queue.drain();
  expect(await read).toBeGreaterThan(1_000_000);
});

test("the end does not wait for a writer that is silent", async () => {
  const queue = new OutputQueue(1000);
  const source = new Readable({ read() {} });
  queue.addSource("stderr", source);
  source.push(Buffer.alloc(10));
  const read = bytesOf(queue);
  await queue.drain();
  expect(await read).toBe(10);
  expect(source.destroyed).toBe(true);
});

test("the end waits for a reader that is slow", async () => {
  const queue = new OutputQueue(10);
  queue.addSource("stdout", Readable.from([Buffer.alloc(10), Buffer.alloc(10), Buffer.alloc(10)]));
  const drained = queue.drain();
  expect(await bytesOf(queue)).toBe(30);
  await drained;
});

test("discard ends the wait of a reader", async () => {
  const queue = new OutputQueue(10);
  queue.addSource("stdout", new Readable({ read() {} }));
  const read = bytesOf(queue);
  queue.discard();
  expect(await read).toBe(0);
});
