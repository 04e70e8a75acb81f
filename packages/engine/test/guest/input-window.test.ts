import { isSandboxError } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { protocolConstants, toGuest } from "../../src/guest/frames.ts";
import { InputWindow, type InputPosition } from "../../src/guest/input-window.ts";

const { MAX_DATA, STDIN_WINDOW } = protocolConstants;

interface Sent {
  type: number;
  offset: number;
  length: number;
}

/** Makes a window whose frames leave this process at once, unless the test handles `onTaken`. */
function makeWindow(
  start: InputPosition = { receivedOffset: 0, handedOnOffset: 0 },
  leave: (onTaken: () => void) => void = (onTaken) => onTaken(),
): { window: InputWindow; sent: Sent[]; bytes: () => Buffer } {
  const sent: Sent[] = [];
  const parts: Buffer[] = [];
  const window = new InputWindow(5, start, (frame, onTaken) => {
    const data = frame.subarray(24, frame.byteLength - 4);
    parts.push(data);
    sent.push({ type: frame.readUInt8(8), offset: Number(frame.readBigUInt64LE(16)), length: data.byteLength });
    leave(onTaken);
  });
  return { window, sent, bytes: () => Buffer.concat(parts) };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const pending = Symbol("pending");
  return (await Promise.race([promise, settled().then(() => pending)])) === pending;
}

describe("writing", () => {
  test("bytes go out at once, with their offset", async () => {
    const { window, sent, bytes } = makeWindow();
    await window.write(Buffer.from("hello "));
    await window.write(Buffer.from("world"));
    expect(sent).toEqual([
      { type: toGuest.STDIN, offset: 0, length: 6 },
      { type: toGuest.STDIN, offset: 6, length: 5 },
    ]);
    expect(bytes().toString()).toBe("hello world");
    expect(window.sentOffset).toBe(11);
  });

  test("much is cut into frames that the guest takes", async () => {
    const { window, sent } = makeWindow();
    await window.write(Buffer.alloc(MAX_DATA * 2 + 1));
    expect(sent.map(({ length }) => length)).toEqual([MAX_DATA, MAX_DATA, 1]);
  });

  test("no more than a window is in transit, and an acknowledgement lets the writer go on", async () => {
    const { window, sent } = makeWindow();
    const written = window.write(Buffer.alloc(STDIN_WINDOW + MAX_DATA));
    expect(await isPending(written)).toBe(true);
    expect(window.sentOffset).toBe(STDIN_WINDOW);
    window.acknowledge(MAX_DATA - 1);
    expect(await isPending(written)).toBe(true);
    window.acknowledge(MAX_DATA);
    await written;
    expect(sent.at(-1)).toEqual({ type: toGuest.STDIN, offset: STDIN_WINDOW, length: MAX_DATA });
  });

  test("an acknowledgement of what has not left this process makes no room for more", async () => {
    const waiting: (() => void)[] = [];
    const { window } = makeWindow(undefined, (onTaken) => waiting.push(onTaken));
    const written = window.write(Buffer.alloc(STDIN_WINDOW + MAX_DATA));
    await settled();
    window.acknowledge(STDIN_WINDOW);
    expect(await isPending(written)).toBe(true);
    expect(window.sentOffset).toBe(STDIN_WINDOW);
    waiting.shift()?.();
    await written;
  });

  test("input that the guest reports as received after a greeting has left this process", async () => {
    const { window } = makeWindow(undefined, () => undefined);
    const written = window.write(Buffer.alloc(STDIN_WINDOW + MAX_DATA));
    await settled();
    window.resend({ receivedOffset: STDIN_WINDOW, handedOnOffset: STDIN_WINDOW });
    await written;
  });

  test("the caller may reuse its buffer after the write", async () => {
    const { window, bytes } = makeWindow();
    const data = Buffer.from("first");
    await window.write(data);
    data.fill("x");
    window.resend({ receivedOffset: 0, handedOnOffset: 0 });
    expect(bytes().toString()).toBe("firstfirst");
  });

  test("the bytes of one call stay together", async () => {
    const { window, bytes } = makeWindow();
    const first = window.write(Buffer.alloc(STDIN_WINDOW + MAX_DATA, "a"));
    const second = window.write(Buffer.from("b"));
    await settled();
    window.acknowledge(STDIN_WINDOW);
    await Promise.all([first, second]);
    expect(bytes().indexOf("b")).toBe(STDIN_WINDOW + MAX_DATA);
  });
});

describe("the end", () => {
  test("it comes after what was written before, once", async () => {
    const { window, sent } = makeWindow();
    void window.write(Buffer.from("abc"));
    await Promise.all([window.end(), window.end()]);
    expect(sent).toEqual([
      { type: toGuest.STDIN, offset: 0, length: 3 },
      { type: toGuest.STDIN_EOF, offset: 3, length: 0 },
    ]);
  });

  test("it waits for a writer that waits", async () => {
    const { window, sent } = makeWindow();
    const written = window.write(Buffer.alloc(STDIN_WINDOW + 1));
    const ended = window.end();
    expect(await isPending(ended)).toBe(true);
    window.acknowledge(STDIN_WINDOW);
    await Promise.all([written, ended]);
    expect(sent.at(-1)).toEqual({ type: toGuest.STDIN_EOF, offset: STDIN_WINDOW + 1, length: 0 });
  });

  test("writing after it is refused", async () => {
    const { window } = makeWindow();
    await window.end();
    const error: unknown = await window.write(Buffer.from("x")).catch((error: unknown) => error);
    expect(isSandboxError(error, "invalid_state") && error.message).toContain("its stdin was closed");
  });

  test("a waiting writer gets an error when the reader closes, with how much was delivered", async () => {
    const { window } = makeWindow();
    const written = window.write(Buffer.alloc(STDIN_WINDOW * 2)).catch((error: unknown) => error);
    await settled();
    window.acknowledge(10);
    window.close("the reader closed its end");
    const error = await written;
    expect(isSandboxError(error, "invalid_state")).toBe(true);
    expect(error).toMatchObject({
      message: expect.stringContaining("the reader closed its end"),
      details: { deliveredBytes: 10 },
    });
  });

  test("nothing is sent to a reader that has closed", async () => {
    const { window, sent } = makeWindow();
    window.close("the reader closed its end");
    await window.end();
    window.resend({ receivedOffset: 0, handedOnOffset: 0 });
    expect(sent).toEqual([]);
  });

  test("the first reason for closing counts", async () => {
    const { window } = makeWindow();
    window.close("the process has ended");
    window.close("the sandbox is gone");
    await expect(window.write(Buffer.from("x"))).rejects.toThrow("the process has ended");
  });
});

describe("after a greeting", () => {
  test("what the guest has not received is sent again, and nothing else", async () => {
    const { window, sent } = makeWindow();
    await window.write(Buffer.from("aaaa"));
    await window.write(Buffer.from("bbbb"));
    await window.write(Buffer.from("cccc"));
    sent.length = 0;
    window.resend({ receivedOffset: 6, handedOnOffset: 2 });
    expect(sent).toEqual([
      { type: toGuest.STDIN, offset: 6, length: 2 },
      { type: toGuest.STDIN, offset: 8, length: 4 },
    ]);
  });

  test("the end is sent again", async () => {
    const { window, sent } = makeWindow();
    await window.write(Buffer.from("aaaa"));
    await window.end();
    sent.length = 0;
    window.resend({ receivedOffset: 4, handedOnOffset: 4 });
    expect(sent).toEqual([{ type: toGuest.STDIN_EOF, offset: 4, length: 0 }]);
  });

  test("what the guest has received and not handed on still fills its window", async () => {
    const { window, sent } = makeWindow();
    await window.write(Buffer.alloc(STDIN_WINDOW));
    window.resend({ receivedOffset: STDIN_WINDOW, handedOnOffset: 100 });
    sent.length = 0;
    const written = window.write(Buffer.alloc(200));
    expect(await isPending(written)).toBe(true);
    expect(sent).toEqual([]);
    window.acknowledge(200);
    await written;
    expect(sent).toEqual([{ type: toGuest.STDIN, offset: STDIN_WINDOW, length: 200 }]);
  });

  test("a successor starts at the guest's position, with the window that a predecessor left", async () => {
    const { window, sent } = makeWindow({ receivedOffset: 300_000, handedOnOffset: 300_000 - STDIN_WINDOW });
    const written = window.write(Buffer.from("next"));
    expect(await isPending(written)).toBe(true);
    window.acknowledge(300_000 - STDIN_WINDOW + 4);
    await written;
    expect(sent).toEqual([{ type: toGuest.STDIN, offset: 300_000, length: 4 }]);
  });

  test("an acknowledgement that comes late or twice changes nothing", async () => {
    const { window, sent } = makeWindow();
    await window.write(Buffer.from("abcdef"));
    window.acknowledge(4);
    window.acknowledge(2);
    window.acknowledge(4);
    sent.length = 0;
    window.resend({ receivedOffset: 0, handedOnOffset: 0 });
    expect(sent).toEqual([{ type: toGuest.STDIN, offset: 4, length: 2 }]);
  });
});

describe("flushing", () => {
  function makeSlowWindow(): { window: InputWindow; take: () => void } {
    const taken: (() => void)[] = [];
    const window = new InputWindow(5, { receivedOffset: 0, handedOnOffset: 0 }, (_, onTaken) => {
      taken.push(onTaken);
    });
    return { window, take: () => taken.shift()?.() };
  }

  test("waits until every frame has left, the end of the input included", async () => {
    const { window, take } = makeSlowWindow();
    await window.write(Buffer.from("hello"));
    await window.end();
    const flushed = window.flush();
    take();
    expect(await isPending(flushed)).toBe(true);
    take();
    await flushed;
  });

  test("rejects when the stream is over before", async () => {
    const { window } = makeSlowWindow();
    await window.write(Buffer.from("hello"));
    const flushed = window.flush();
    window.close("the sandbox is gone");
    await expect(flushed).rejects.toThrow("the sandbox is gone");
  });
});
