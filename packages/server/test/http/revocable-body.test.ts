import { once } from "node:events";
import { PassThrough } from "node:stream";
import { expect, test } from "vitest";
import { revocableBody } from "../../src/http/revocable-body.ts";

async function all(body: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of body) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

test("a body is complete while its key is valid", async () => {
  const source = new PassThrough();
  const revocation = new AbortController();
  const read = all(revocableBody(source, revocation.signal));
  source.write("one ");
  source.end("two");
  expect(await read).toBe("one two");
});

test("a body whose client sends nothing fails when the key is revoked, and the rest is discarded", async () => {
  const source = new PassThrough();
  const revocation = new AbortController();
  const body = revocableBody(source, revocation.signal)[Symbol.asyncIterator]();
  source.write("one");
  expect(await body.next()).toMatchObject({ value: Buffer.from("one") });
  const next = body.next();
  revocation.abort(new Error("revoked"));
  await expect(next).rejects.toThrow("revoked");
  await expect(body.next()).rejects.toThrow("revoked");
  source.end(Buffer.alloc(1024 * 1024));
  await once(source, "close");
});

test("a body fails also if its end was there and no reader waited when the key was revoked", async () => {
  const source = new PassThrough();
  const revocation = new AbortController();
  const body = revocableBody(source, revocation.signal);
  source.end("whole");
  revocation.abort(new Error("revoked"));
  await expect(all(body)).rejects.toThrow("revoked");
});

test("a reader that stops ends the stream", async () => {
  const source = new PassThrough();
  source.write("one");
  for await (const _ of revocableBody(source, new AbortController().signal)) break;
  expect(source.destroyed).toBe(true);
});
