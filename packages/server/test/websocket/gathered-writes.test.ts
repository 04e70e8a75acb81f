import { Writable } from "node:stream";
import { expect, test } from "vitest";
import { GatheredWrites } from "../../src/websocket/gathered-writes.ts";

test("what is written in one turn is sent together, in order, also in the next turn", async () => {
  const left: string[] = [];
  const stream = new Writable({
    writev: (chunks, done) => {
      left.push(chunks.map(({ chunk }) => String(chunk)).join(""));
      done();
    },
  });
  const writes = new GatheredWrites(stream);
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  for (const piece of ["a", "b", "c"]) {
    writes.gather();
    stream.write(piece);
  }
  expect(left).toEqual([]);
  await turn();
  expect(left).toEqual(["abc"]);
  writes.gather();
  stream.write("d");
  await turn();
  expect(left).toEqual(["abc", "d"]);
});

test("a stream that is gone by then causes no error", async () => {
  const stream = new Writable({ write: (_chunk, _encoding, done) => done() });
  new GatheredWrites(stream).gather();
  stream.destroy();
  await new Promise((resolve) => setImmediate(resolve));
  expect(stream.destroyed).toBe(true);
});
