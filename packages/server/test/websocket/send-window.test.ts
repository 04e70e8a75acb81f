import { expect, test } from "vitest";
import { decodeBinary, encodeBinary } from "../../src/websocket/frames.ts";
import { SendWindow } from "../../src/websocket/send-window.ts";

const never = new AbortController().signal;

test("a sender waits when the window is full, and continues when the reader acknowledges", async () => {
  const window = new SendWindow(100);
  expect(await window.room(never)).toBe(100);
  window.sent(60, 60);
  expect(await window.room(never)).toBe(40);
  window.sent(100, 40);
  let isFree = false;
  const waiting = window.room(never).then((bytes) => {
    isFree = true;
    return bytes;
  });
  window.acknowledge(0);
  await Promise.resolve();
  expect(isFree).toBe(false);
  window.acknowledge(60);
  expect(await waiting).toBe(60);
});

test("acknowledged bytes free the window exactly, whatever pieces they were sent in", async () => {
  const window = new SendWindow(100);
  for (let at = 1; at <= 80; at += 1) window.sent(at, 1);
  window.acknowledge(79);
  expect(await window.room(never)).toBe(99);
  window.acknowledge(50);
  expect(await window.room(never)).toBe(99);
  // A reader cannot acknowledge what was not sent.
  window.acknowledge(1_000_000);
  expect(await window.room(never)).toBe(100);
});

test("a window takes no more memory for many small pieces than for one", async () => {
  const pieces = 1_000_000;
  const window = new SendWindow(2 * pieces);
  const before = process.memoryUsage().heapUsed;
  for (let at = 1; at <= pieces; at += 1) window.sent(at, 1);
  // A few tens of bytes for each piece would be more than this.
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(16 * 1024 * 1024);
  expect(await window.room(never)).toBe(pieces);
});

test("bytes that the log no longer has do not fill the window", async () => {
  const window = new SendWindow(100);
  window.sent(50, 50);
  // 1 GB was dropped; the next byte is far behind it.
  window.sent(1_000_000_050, 50);
  window.acknowledge(50);
  expect(await window.room(never)).toBe(50);
});

test("a sender that waits for room is rejected when the channel closes", async () => {
  const window = new SendWindow(1);
  window.sent(1, 1);
  const channel = new AbortController();
  const waiting = window.room(channel.signal);
  channel.abort(new Error("closed"));
  await expect(waiting).rejects.toThrow("closed");
});

test("a binary message is decoded as it was encoded", () => {
  const frame = { kind: "stderr", channel: 0xffff_ffff, at: 2 ** 40, offset: 7, bytes: Buffer.from("hi") } as const;
  expect(decodeBinary(encodeBinary(frame))).toEqual(frame);
});

test.for<[string, Buffer]>([
  ["too short", Buffer.alloc(20)],
  ["of no known kind", Buffer.alloc(21, 9)],
  ["with an offset beyond all streams", Buffer.concat([Buffer.from([3]), Buffer.alloc(20, 0xff)])],
])("a binary message %s is invalid", ([, bytes]) => {
  expect(decodeBinary(bytes)).toBeUndefined();
});
