import { describe, expect, test } from "vitest";
import { FrameDecoder } from "../../src/guest/decoder.ts";
import { headerBytes, protocolConstants, toHost, trailerBytes, type Frame } from "../../src/guest/frames.ts";
import { MalformedPayload } from "../../src/guest/wire.ts";
import { everyGuestFrame, guestFrame, rawFrame, welcomePayload } from "../support/guest-frames.ts";

const nonce = Buffer.from("0123456789abcdef");
const otherNonce = Buffer.from("fedcba9876543210");
const longestFrame = headerBytes + protocolConstants.MAX_TO_HOST + trailerBytes;
const short = [
  guestFrame.welcome(nonce),
  guestFrame.started(5, 123),
  guestFrame.output(5, 0, 0, 1, "hello\n"),
  guestFrame.done(7),
  guestFrame.pong(11, Buffer.from("12345678")),
];

/**
 * Copies the frames: a decoder yields views that are valid until the next frame is requested. Each chunk is in the same
 * memory, as when it is read.
 */
function decode(decoder: FrameDecoder, ...chunks: Buffer[]): Frame[] {
  const memory = Buffer.alloc(Math.max(...chunks.map(({ byteLength }) => byteLength)));
  const frames: Frame[] = [];
  for (const chunk of chunks) {
    chunk.copy(memory);
    for (const frame of decoder.push(memory.subarray(0, chunk.byteLength))) {
      frames.push({ ...frame, payload: Buffer.from(frame.payload) });
    }
  }
  return frames;
}

function greeted(): FrameDecoder {
  const decoder = new FrameDecoder(nonce);
  decode(decoder, guestFrame.welcome(nonce));
  return decoder;
}

describe("frames", () => {
  const stream = Buffer.concat(everyGuestFrame(nonce));
  const whole = decode(new FrameDecoder(nonce), stream);

  test("one of each type comes out as it went in", () => {
    const again = Buffer.concat(whole.map(({ type, id, payload }) => rawFrame(type, id, payload)));
    expect(again.equals(stream)).toBe(true);
    expect(new Set(whole.map(({ type }) => type))).toEqual(new Set(Object.values(toHost)));
  });

  test("they are the same wherever the stream is cut in two", () => {
    const bytes = Buffer.concat(short);
    const expected = decode(new FrameDecoder(nonce), bytes);
    expect(expected.length).toBe(short.length);
    for (let cut = 1; cut < bytes.byteLength; cut += 1) {
      expect(decode(new FrameDecoder(nonce), bytes.subarray(0, cut), bytes.subarray(cut))).toEqual(expected);
    }
  });

  test("they are the same when every byte comes alone", () => {
    const bytes = Array.from(Buffer.concat(short), (byte) => Buffer.from([byte]));
    expect(decode(new FrameDecoder(nonce), ...bytes).length).toBe(short.length);
  });

  test("a long one is whole however many pieces it comes in", () => {
    const long = guestFrame.output(5, 0, 0, 1, Buffer.alloc(65_536, 1));
    const decoder = greeted();
    expect(decode(decoder, long.subarray(0, 20_000), long.subarray(20_000, 40_000))).toEqual([]);
    expect(decoder.bufferedBytes).toBe(40_000);
    expect(decode(decoder, long.subarray(40_000))).toHaveLength(1);
    expect(decoder.bufferedBytes).toBe(0);
  });

  test("the longest payload is taken", () => {
    const payload = Buffer.alloc(protocolConstants.MAX_TO_HOST, 1);
    const [frame] = decode(greeted(), rawFrame(toHost.PONG, 1, payload));
    expect(frame?.payload.equals(payload)).toBe(true);
  });
});

describe("invalid frames", () => {
  const good = guestFrame.started(5, 123);
  const flipped = (offset: number): Buffer => {
    const bytes = Buffer.from(good);
    bytes.writeUInt8(bytes.readUInt8(offset) ^ 1, offset);
    return bytes;
  };

  test.for([
    { what: "a wrong magic number", bytes: flipped(0), message: "magic" },
    { what: "bits that must be zero", bytes: flipped(9), message: "zero" },
    { what: "the highest of the bits that must be zero", bytes: flipped(11), message: "zero" },
    { what: "another type than the trailer knows", bytes: flipped(8), message: "trailer" },
    { what: "another id than the trailer knows", bytes: flipped(12), message: "trailer" },
    { what: "a wrong trailer", bytes: flipped(good.byteLength - 1), message: "trailer" },
  ])("$what is refused", ({ bytes, message }) => {
    expect(() => decode(greeted(), bytes)).toThrow(MalformedPayload);
    expect(() => decode(greeted(), bytes)).toThrow(message);
  });

  test("a payload above the longest is refused at its header, before a byte of it is buffered", () => {
    const bytes = Buffer.from(good);
    bytes.writeUInt32LE(protocolConstants.MAX_TO_HOST + 1, 4);
    expect(() => decode(greeted(), bytes.subarray(0, headerBytes))).toThrow(MalformedPayload);
  });

  test("earlier frames are still returned", () => {
    const seen: number[] = [];
    expect(() => {
      for (const { type } of greeted().push(Buffer.concat([good, Buffer.alloc(headerBytes)]))) seen.push(type);
    }).toThrow(MalformedPayload);
    expect(seen).toEqual([toHost.STARTED]);
  });
});

describe("the search for the welcome", () => {
  const welcome = guestFrame.welcome(nonce);
  const torn = guestFrame.output(5, 0, 0, 1, Buffer.alloc(1000, 7));

  test.for([
    { what: "nothing", before: Buffer.alloc(0) },
    { what: "zeros", before: Buffer.alloc(100_000) },
    { what: "whole frames for a predecessor", before: Buffer.concat([torn, guestFrame.done(3)]) },
    { what: "half a frame", before: torn.subarray(0, 500) },
    { what: "half a header", before: torn.subarray(0, 9) },
    { what: "a predecessor's welcome", before: guestFrame.welcome(otherNonce, [{ id: 1 }]) },
    { what: "the beginning of a welcome", before: welcome.subarray(0, 19) },
    { what: "the nonce alone", before: nonce },
    { what: "the nonce in output", before: guestFrame.output(5, 0, 0, 1, nonce) },
    {
      what: "the nonce in another frame at a welcome's place",
      before: rawFrame(toHost.PONG, 0, welcomePayload(nonce)),
    },
    { what: "most of the nonce", before: Buffer.concat([welcome.subarray(0, 20), nonce.subarray(0, 15)]) },
    { what: "many beginnings of the magic number", before: Buffer.from("ATOATOATOATOLATOL") },
  ])("it is found after $what, wherever the stream is cut", ({ before }) => {
    const bytes = Buffer.concat([before, welcome, guestFrame.done(9)]);
    const from = Math.max(1, before.byteLength - 40);
    for (let cut = from; cut < bytes.byteLength; cut += 1) {
      const frames = decode(new FrameDecoder(nonce), bytes.subarray(0, cut), bytes.subarray(cut));
      expect(frames.map(({ type }) => type)).toEqual([toHost.WELCOME, toHost.DONE]);
    }
  });

  test("nothing is returned before it, and hardly anything is buffered", () => {
    const decoder = new FrameDecoder(nonce);
    for (let round = 0; round < 100; round += 1) expect(decode(decoder, torn, guestFrame.done(1))).toEqual([]);
    expect(decoder.bufferedBytes).toBeLessThan(headerBytes + 4 + nonce.byteLength);
  });

  test("a new search drops what was buffered for the old stream", () => {
    const decoder = greeted();
    decode(decoder, torn.subarray(0, 500));
    expect(decoder.bufferedBytes).toBe(500);
    decoder.expectWelcome(otherNonce);
    expect(decoder.bufferedBytes).toBe(0);
    const frames = decode(decoder, torn.subarray(500), guestFrame.welcome(nonce), guestFrame.welcome(otherNonce));
    expect(frames.map(({ payload }) => payload)).toEqual([welcomePayload(otherNonce)]);
  });

  test("a new one from within the reading of a frame applies to the very next byte", () => {
    const decoder = greeted();
    const seen: number[] = [];
    for (const { type } of decoder.push(Buffer.concat([guestFrame.ready(1), guestFrame.done(2)]))) {
      seen.push(type);
      decoder.expectWelcome(otherNonce);
    }
    for (const { type } of decoder.push(guestFrame.welcome(otherNonce))) seen.push(type);
    expect(seen).toEqual([toHost.READY, toHost.WELCOME]);
  });
});

test("a frame that is whole in its chunk is not copied", () => {
  const chunk = Buffer.concat([guestFrame.started(5, 123), guestFrame.output(5, 0, 0, 1, "here")]);
  for (const { payload } of greeted().push(chunk)) expect(payload.buffer).toBe(chunk.buffer);
});

test("frames in pieces take no more memory than the longest of them", () => {
  const decoder = greeted();
  const memory = new Set<ArrayBufferLike>();
  for (const size of [5, 60_000, 1000, 60_000, 20]) {
    const frame = rawFrame(toHost.PONG, 1, Buffer.alloc(size, size));
    for (const cut of [frame.subarray(0, 10), frame.subarray(10)]) {
      for (const { payload } of decoder.push(cut)) {
        expect(payload.equals(Buffer.alloc(size, size))).toBe(true);
        memory.add(payload.buffer);
      }
    }
  }
  expect([...memory].map(({ byteLength }) => byteLength)).toEqual([
    headerBytes + 5 + trailerBytes,
    headerBytes + 60_000 + trailerBytes,
  ]);
});

test("no more than one frame is ever buffered", () => {
  const decoder = greeted();
  const frame = rawFrame(toHost.PONG, 1, Buffer.alloc(protocolConstants.MAX_TO_HOST));
  const bytes = Buffer.concat([frame, frame, frame]);
  for (let start = 0; start < bytes.byteLength; start += 1000) {
    decode(decoder, bytes.subarray(start, start + 1000));
    expect(decoder.bufferedBytes).toBeLessThan(longestFrame);
  }
});
