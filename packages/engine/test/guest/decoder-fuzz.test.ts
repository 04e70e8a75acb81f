import { expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import { FrameDecoder } from "../../src/guest/decoder.ts";
import {
  frameTrailer,
  headerBytes,
  protocolConstants,
  toHost,
  trailerBytes,
  type Frame,
} from "../../src/guest/frames.ts";
import { parseGuestFrame } from "../../src/guest/messages.ts";
import { MalformedPayload } from "../../src/guest/wire.ts";
import { everyGuestFrame, guestFrame, rawFrame } from "../support/guest-frames.ts";
import { SeededRandom } from "../support/seeded-random.ts";

const nonce = Buffer.from("0123456789abcdef");
const longestFrame = headerBytes + protocolConstants.MAX_TO_HOST + trailerBytes;
const runMs = thorough(200, 20_000);
const honest = everyGuestFrame(nonce).filter((frame) => frame.byteLength < 10_000);

type Mutation = (stream: Buffer, random: SeededRandom) => Buffer;

const mutations: Mutation[] = [
  function flipBits(stream, random) {
    for (let flips = 1 + random.below(8); flips > 0; flips -= 1) {
      const at = random.below(stream.byteLength);
      stream.writeUInt8(stream.readUInt8(at) ^ (1 << random.below(8)), at);
    }
    return stream;
  },
  function truncate(stream, random) {
    return stream.subarray(0, random.below(stream.byteLength));
  },
  function insert(stream, random) {
    const at = random.below(stream.byteLength);
    return Buffer.concat([stream.subarray(0, at), random.bytes(1 + random.below(64)), stream.subarray(at)]);
  },
  function remove(stream, random) {
    const at = random.below(stream.byteLength);
    return Buffer.concat([stream.subarray(0, at), stream.subarray(at + 1 + random.below(64))]);
  },
  function lieAboutLengths(stream, random) {
    const lengths = [0, 1, 0xffff_ffff, 0x7fff_ffff, protocolConstants.MAX_TO_HOST, protocolConstants.MAX_TO_HOST + 1];
    for (let at = stream.indexOf("ATOL"); at !== -1; at = stream.indexOf("ATOL", at + 1)) {
      if (random.below(3) === 0 && at + 8 <= stream.byteLength) stream.writeUInt32LE(random.oneOf(lengths), at + 4);
    }
    return stream;
  },
];

/** Reads a stream in every possible way: to its end, or to the first invalid byte. */
function readHostile(stream: Buffer, random: SeededRandom): Frame[] {
  const decoder = new FrameDecoder(nonce);
  const frames: Frame[] = [];
  try {
    for (const chunk of random.pieces(stream, random.oneOf([1, 7, 100, 5000, 70_000]))) {
      for (const frame of decoder.push(chunk)) frames.push({ ...frame, payload: Buffer.from(frame.payload) });
      expect(decoder.bufferedBytes).toBeLessThanOrEqual(longestFrame);
    }
  } catch (error) {
    expect(error).toBeInstanceOf(MalformedPayload);
  }
  return frames;
}

function expectWellFormed(frames: readonly Frame[], stream: Buffer): void {
  for (const [index, { type, id, payload }] of frames.entries()) {
    if (index === 0) expect(type).toBe(toHost.WELCOME);
    expect(payload.byteLength).toBeLessThanOrEqual(protocolConstants.MAX_TO_HOST);
    // The stream contains each frame as it was returned, with its trailer.
    expect(stream.includes(rawFrame(type, id, payload))).toBe(true);
  }
}

test("random bytes never become a frame, and throw only MalformedPayload", () => {
  const random = SeededRandom.forFuzz("bytes");
  for (const endMs = performance.now() + runMs / 2; performance.now() < endMs;) {
    expect(readHostile(random.bytes(random.below(5000)), random)).toEqual([]);
  }
});

test("a stream that was tampered with yields only valid frames", () => {
  const random = SeededRandom.forFuzz("streams");
  for (const endMs = performance.now() + runMs; performance.now() < endMs;) {
    const rest = Array.from({ length: random.below(20) }, () => random.oneOf(honest));
    let stream: Buffer = Buffer.concat([random.bytes(random.below(50)), guestFrame.welcome(nonce), ...rest]);
    for (let rounds = 1 + random.below(3); rounds > 0 && stream.byteLength > 0; rounds -= 1) {
      stream = random.oneOf(mutations)(stream, random);
    }
    expectWellFormed(readHostile(stream, random), stream);
  }
});

test("a payload of any bytes is a message or malformed, nothing else", () => {
  const random = SeededRandom.forFuzz("payloads");
  const types = [...Object.values(toHost), 0, 0x01, 0xff];
  for (const endMs = performance.now() + runMs; performance.now() < endMs;) {
    const frame = random.below(2) === 0 ? randomFrame(random, types) : tamperedFrame(random);
    try {
      const message = parseGuestFrame(frame);
      expect(JSON.stringify(message).length).toBeGreaterThan(0);
    } catch (error) {
      expect(error).toBeInstanceOf(MalformedPayload);
    }
  }
});

function randomFrame(random: SeededRandom, types: readonly number[]): Frame {
  return { type: random.oneOf(types), id: random.u32(), payload: random.bytes(random.below(200)) };
}

/** Makes an honest payload with one change, so that the deeper fields are reached too. */
function tamperedFrame(random: SeededRandom): Frame {
  const bytes = Buffer.from(random.oneOf(honest));
  const honestPayload = bytes.subarray(headerBytes, -trailerBytes);
  const payload = honestPayload.byteLength === 0 ? random.bytes(1) : random.oneOf(mutations)(honestPayload, random);
  return { type: bytes.readUInt8(8), id: bytes.readUInt32LE(12), payload };
}

test("the trailer of every frame is the one that the page gives", () => {
  const random = new SeededRandom(1);
  for (let round = 0; round < 1000; round += 1) {
    const [type, id, length] = [random.below(256), random.u32(), random.below(protocolConstants.MAX_TO_HOST)];
    const expected = BigInt.asUintN(32, ~(BigInt(length) ^ BigInt(id) ^ BigInt(type)));
    expect(BigInt(frameTrailer(type, id, length))).toBe(expected);
  }
});
