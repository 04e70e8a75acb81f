import { describe, expect, test } from "vitest";
import { protocolConstants, toHost } from "../../src/guest/frames.ts";
import { parseGuestFrame, type GuestMessage } from "../../src/guest/messages.ts";
import { MalformedPayload, PayloadWriter } from "../../src/guest/wire.ts";
import {
  entryPayload,
  exitPayload,
  guestFrame,
  rawFrame,
  welcomePayload,
  type EntryParts,
} from "../support/guest-frames.ts";

const nonce = Buffer.alloc(16, 5);

function parse(bytes: Buffer): GuestMessage {
  return parseGuestFrame({
    type: bytes.readUInt8(8),
    id: bytes.readUInt32LE(12),
    payload: bytes.subarray(16, bytes.byteLength - 4),
  });
}

const payload = (): PayloadWriter => new PayloadWriter();

describe("well-formed", () => {
  test.for<{ what: string; frame: Buffer; message: GuestMessage }>([
    {
      what: "WELCOME of an empty guest",
      frame: guestFrame.welcome(nonce),
      message: { type: "welcome", version: 1, streams: [] },
    },
    { what: "STARTED", frame: guestFrame.started(5, 77), message: { type: "started", id: 5, pid: 77 } },
    {
      what: "FAILED",
      frame: guestFrame.failed(5, 2, "exec nöthing"),
      message: { type: "failed", id: 5, errno: 2, what: "exec nöthing" },
    },
    {
      what: "OUTPUT",
      frame: guestFrame.output(5, 10, 4, 2, "abc"),
      message: { type: "output", id: 5, at: 10, offset: 4, output: 2, data: Buffer.from("abc") },
    },
    { what: "STDIN_ACK", frame: guestFrame.stdinAck(5, 9), message: { type: "stdinAck", id: 5, offset: 9 } },
    { what: "STDIN_CLOSED", frame: guestFrame.stdinClosed(5, 9), message: { type: "stdinClosed", id: 5, offset: 9 } },
    { what: "END", frame: guestFrame.end(5, 2 ** 52), message: { type: "end", id: 5, at: 2 ** 52 } },
    {
      what: "CONNECT by HTTP CONNECT",
      frame: guestFrame.connect(0x8000_0003, "example.org", 443, 1),
      message: { type: "connect", id: 0x8000_0003, protocol: "http-connect", host: "example.org", port: 443 },
    },
    {
      what: "CONNECT by HTTP",
      frame: guestFrame.connect(0x8000_0003, "::1", 80, 2),
      message: { type: "connect", id: 0x8000_0003, protocol: "http", host: "::1", port: 80 },
    },
    {
      what: "CONNECT by SOCKS5",
      frame: guestFrame.connect(0x8000_0003, "h".repeat(255), 65_535, 3),
      message: { type: "connect", id: 0x8000_0003, protocol: "socks5", host: "h".repeat(255), port: 65_535 },
    },
    { what: "DONE", frame: guestFrame.done(7), message: { type: "done", id: 7 } },
    {
      what: "COUNTED",
      frame: guestFrame.counted(7, 3, { streams: 2, bufferedBytes: 4096, ofOneUser: 1 }),
      message: { type: "counted", id: 7, processes: 3, ofOneUser: 1, streams: 2, bufferedBytes: 4096 },
    },
    {
      what: "COUNTED by an older guest",
      frame: rawFrame(toHost.COUNTED, 7, payload().u32(3).u32(2).u64(4096).finish()),
      message: { type: "counted", id: 7, processes: 3, ofOneUser: 3, streams: 2, bufferedBytes: 4096 },
    },
    {
      what: "HELD_BY",
      frame: guestFrame.heldBy(7, [{ pid: 9, streamId: 0, command: "vi a" }]),
      message: { type: "heldBy", id: 7, holders: [{ pid: 9, streamId: 0, command: "vi a" }] },
    },
    {
      what: "NODES_ARE",
      frame: guestFrame.nodesAre(7, [Buffer.from("one"), Buffer.from("two")]),
      message: { type: "nodes", id: 7, entries: [Buffer.from("one"), Buffer.from("two")] },
    },
    { what: "READY", frame: guestFrame.ready(7), message: { type: "ready", id: 7 } },
    {
      what: "PONG",
      frame: guestFrame.pong(7, Buffer.from("x")),
      message: { type: "pong", id: 7, payload: Buffer.from("x") },
    },
  ])("$what", ({ frame, message }) => {
    expect(parse(frame)).toEqual(message);
  });

  test("EXIT with a code", () => {
    const frame = guestFrame.exit(5, { code: 255, at: 12, userUs: 1_500, systemUs: 250, peakKib: 3 });
    expect(parse(frame)).toEqual({
      type: "exit",
      id: 5,
      exit: {
        exitCode: 255,
        signal: null,
        timedOut: false,
        at: 12,
        cpuUserMs: 1.5,
        cpuSystemMs: 0.25,
        peakMemoryBytes: 3072,
      },
    });
  });

  test("EXIT by a signal, after the time limit", () => {
    expect(parse(guestFrame.exit(5, { kind: 1, code: 9, flags: 1, dumpedCore: 1 }))).toMatchObject({
      exit: { exitCode: null, signal: "SIGKILL", timedOut: true },
    });
  });

  test("EXIT by a real-time signal", () => {
    expect(parse(guestFrame.exit(5, { kind: 1, code: 64 }))).toMatchObject({ exit: { signal: "SIGRT64" } });
  });

  test("WELCOME with streams of every kind", () => {
    const frame = guestFrame.welcome(nonce, [
      { id: 3, flags: 1, pid: 44, ackedAt: 5, producedAt: 9, inputReceived: 8, inputHandedOn: 6 },
      { id: 4, state: 2, flags: 6, exit: exitPayload({ code: 7, at: 2 }), ackedAt: 2 },
      { id: 5, kind: 2, pid: 0 },
      { id: 0x8000_0001, kind: 3, state: 3, pid: 0 },
    ]);
    expect(parse(frame)).toMatchObject({
      streams: [
        {
          id: 3,
          kind: "process",
          state: "living",
          hasPty: true,
          outputEnded: false,
          inputClosed: false,
          pid: 44,
          ackedAt: 5,
          producedAt: 9,
          inputReceived: 8,
          inputHandedOn: 6,
          exit: undefined,
        },
        { id: 4, state: "exited", hasPty: false, outputEnded: true, inputClosed: true, exit: { exitCode: 7, at: 2 } },
        { id: 5, kind: "dialled", state: "living" },
        { id: 0x8000_0001, kind: "asked", state: "waiting" },
      ],
    });
  });

  test("WELCOME with as many streams as a guest can have", () => {
    const entries = Array.from({ length: protocolConstants.MAX_STREAMS }, (_, index) => ({ id: index + 1 }));
    expect(parse(guestFrame.welcome(nonce, entries))).toMatchObject({
      streams: { length: protocolConstants.MAX_STREAMS },
    });
  });

  test("a WELCOME of another version is read up to its version", () => {
    const future = payload().u32(2).bytes(nonce).str("streams, in a form that is not known yet").finish();
    expect(parse(rawFrame(toHost.WELCOME, 0, future))).toEqual({ type: "welcome", version: 2, streams: [] });
  });
});

const nul = "a\0b";
const long = (length: number): string => "x".repeat(length);
const entry = (parts: Omit<EntryParts, "id"> & { id?: number }): Buffer =>
  guestFrame.welcome(nonce, [{ id: 1, ...parts }]);
const connect = (host: string, port = 80, protocol = 1): Buffer =>
  guestFrame.connect(0x8000_0001, host, port, protocol);

describe("malformed", () => {
  test.for<[string, Buffer]>([
    ["an unknown type", rawFrame(0x97, 1)],
    ["a type of the other direction", rawFrame(0x10, 1)],
    ["WELCOME with an id", rawFrame(toHost.WELCOME, 1, welcomePayload(nonce))],
    [
      "WELCOME with more streams than a guest can have",
      rawFrame(toHost.WELCOME, 0, payload().u32(1).bytes(nonce).u32(769).finish()),
    ],
    [
      "WELCOME with fewer entries than it counts",
      rawFrame(toHost.WELCOME, 0, payload().u32(1).bytes(nonce).u32(1).finish()),
    ],
    ["WELCOME with bytes left over", rawFrame(toHost.WELCOME, 0, Buffer.concat([welcomePayload(nonce), nonce]))],
    ["WELCOME without a nonce", rawFrame(toHost.WELCOME, 0, payload().u32(1).finish())],
    ["an entry without an id", entry({ id: 0 })],
    ["an entry of an unknown kind", entry({ kind: 4 })],
    ["an entry in an unknown state", entry({ state: 0 })],
    ["an entry with unknown flags", entry({ flags: 8 })],
    ["an entry with a byte that must be zero", entry({ zero: 1 })],
    ["an entry that acknowledged more than it produced", entry({ ackedAt: 2, producedAt: 1 })],
    ["an entry that holds more than any window", entry({ producedAt: protocolConstants.WINDOW_MAX + 1 })],
    ["an entry that handed on more than it received", entry({ inputReceived: 1, inputHandedOn: 2 })],
    [
      "an entry with more input than a window",
      entry({ inputReceived: protocolConstants.STDIN_WINDOW + 1, inputHandedOn: 0 }),
    ],
    ["a process with an id of the guest's", entry({ id: 0x8000_0001 })],
    ["an asked connection with an id of the host's", entry({ kind: 3 })],
    ["an entry that ended in a way nothing can", entry({ state: 2, exit: exitPayload({ code: 256 }) })],
    ["STARTED without a pid", rawFrame(toHost.STARTED, 1)],
    ["STARTED with bytes left over", rawFrame(toHost.STARTED, 1, payload().u64(1).finish())],
    [
      "FAILED with a string beyond its end",
      rawFrame(toHost.FAILED, 1, payload().u32(2).u32(5).bytes(Buffer.from("abcd")).finish()),
    ],
    ["FAILED with a string without end", rawFrame(toHost.FAILED, 1, payload().u32(2).u32(0xffff_ffff).finish())],
    ["FAILED with too long a string", guestFrame.failed(1, 2, long(4097))],
    ["FAILED with a NUL", guestFrame.failed(1, 2, nul)],
    ["OUTPUT without data", guestFrame.output(1, 0, 0, 1, "")],
    ["OUTPUT with more data than allowed", guestFrame.output(1, 0, 0, 1, Buffer.alloc(65_537))],
    ["OUTPUT of output 0", guestFrame.output(1, 0, 0, 0, "x")],
    ["OUTPUT of output 3", guestFrame.output(1, 0, 0, 3, "x")],
    ["OUTPUT at an offset that no program reaches", guestFrame.output(1, 2n ** 53n, 0, 1, "x")],
    ["OUTPUT without a head", rawFrame(toHost.OUTPUT, 1, Buffer.alloc(16))],
    ["STDIN_ACK of too much", guestFrame.stdinAck(1, 2n ** 64n - 1n)],
    ["STDIN_CLOSED of half a number", rawFrame(toHost.STDIN_CLOSED, 1, Buffer.alloc(4))],
    ["END with bytes left over", rawFrame(toHost.END, 1, Buffer.alloc(9))],
    ["EXIT with code 256", guestFrame.exit(1, { code: 256 })],
    ["EXIT by signal 0", guestFrame.exit(1, { kind: 1, code: 0 })],
    ["EXIT by signal 65", guestFrame.exit(1, { kind: 1, code: 65 })],
    ["EXIT of a third kind", guestFrame.exit(1, { kind: 2 })],
    ["EXIT with unknown flags", guestFrame.exit(1, { flags: 2 })],
    ["EXIT with two cores", guestFrame.exit(1, { dumpedCore: 2 })],
    ["EXIT with a byte that must be zero", guestFrame.exit(1, { zero: 1 })],
    ["EXIT at no such place", guestFrame.exit(1, { at: 2n ** 63n })],
    ["EXIT that is too short", rawFrame(toHost.EXIT, 1, exitPayload().subarray(1))],
    ["CONNECT to port 0", connect("example.org", 0)],
    ["CONNECT to nowhere", connect("")],
    ["CONNECT with a NUL", connect(nul)],
    ["CONNECT with a line end", connect("a\r\nb")],
    ["CONNECT with a space", connect("a b")],
    ["CONNECT with too long a name", connect(long(256))],
    ["CONNECT by an unknown protocol", connect("example.org", 80, 4)],
    ["DONE with a payload", rawFrame(toHost.DONE, 1, Buffer.alloc(1))],
    ["READY with a payload", rawFrame(toHost.READY, 1, Buffer.alloc(1))],
    ["COUNTED that is too short", rawFrame(toHost.COUNTED, 1, Buffer.alloc(15))],
    ["COUNTED with half a number", rawFrame(toHost.COUNTED, 1, Buffer.alloc(18))],
    ["COUNTED that is too long", rawFrame(toHost.COUNTED, 1, Buffer.alloc(21))],
    ["HELD_BY with more than fits", rawFrame(toHost.HELD_BY, 1, payload().u32(1025).finish())],
    ["HELD_BY with fewer than it counts", rawFrame(toHost.HELD_BY, 1, payload().u32(1).finish())],
    ["NODES_ARE with more than fits", rawFrame(toHost.NODES_ARE, 1, payload().u32(2049).finish())],
    ["NODES_ARE with an entry that is too long", rawFrame(toHost.NODES_ARE, 1, payload().u32(1).u32(9).finish())],
  ])("%s", ([, frame]) => {
    expect(() => parse(frame)).toThrow(MalformedPayload);
  });

  test("every payload that is cut short", () => {
    const frames = [
      guestFrame.welcome(nonce, [{ id: 3 }]),
      guestFrame.started(5, 77),
      guestFrame.failed(5, 2, "exec"),
      guestFrame.stdinAck(5, 9),
      guestFrame.stdinClosed(5, 9),
      guestFrame.exit(5),
      guestFrame.end(5, 9),
      connect("example.org"),
      guestFrame.heldBy(7, [{ pid: 9, streamId: 0, command: "vi" }]),
      guestFrame.nodesAre(7, [Buffer.from("entry")]),
    ];
    for (const frame of frames) {
      const whole = frame.subarray(16, frame.byteLength - 4);
      for (let length = 0; length < whole.byteLength; length += 1) {
        const cut = { type: frame.readUInt8(8), id: frame.readUInt32LE(12), payload: whole.subarray(0, length) };
        expect(() => parseGuestFrame(cut)).toThrow(MalformedPayload);
      }
    }
  });
});

test("an entry has the size that the page gives", () => {
  expect(entryPayload({ id: 1 }).byteLength).toBe(84);
  expect(exitPayload().byteLength).toBe(40);
});
