import { frameMagic, frameTrailer, toHost } from "../../src/guest/frames.ts";
import { PayloadWriter } from "../../src/guest/wire.ts";

/** Makes the bytes of frames that a guest can send, and of ones that none should. */
export function rawFrame(type: number, id: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const trailer = frameTrailer(type, id, payload.byteLength);
  return new PayloadWriter()
    .u32(frameMagic)
    .u32(payload.byteLength)
    .u32(type)
    .u32(id)
    .bytes(payload)
    .u32(trailer)
    .finish();
}

export interface EntryParts {
  id: number;
  kind?: number;
  state?: number;
  flags?: number;
  zero?: number;
  pid?: number;
  ackedAt?: number;
  producedAt?: number;
  inputReceived?: number;
  inputHandedOn?: number;
  exit?: Buffer;
}

export interface ExitParts {
  kind?: number;
  flags?: number;
  dumpedCore?: number;
  zero?: number;
  code?: number;
  at?: number | bigint;
  userUs?: number;
  systemUs?: number;
  peakKib?: number;
}

export function exitPayload(parts: ExitParts = {}): Buffer {
  return new PayloadWriter()
    .u8(parts.kind ?? 0)
    .u8(parts.flags ?? 0)
    .u8(parts.dumpedCore ?? 0)
    .u8(parts.zero ?? 0)
    .u32(parts.code ?? 0)
    .u64(parts.at ?? 0)
    .u64(parts.userUs ?? 0)
    .u64(parts.systemUs ?? 0)
    .u64(parts.peakKib ?? 0)
    .finish();
}

export function entryPayload(parts: EntryParts): Buffer {
  return new PayloadWriter()
    .u32(parts.id)
    .u8(parts.kind ?? 1)
    .u8(parts.state ?? 1)
    .u8(parts.flags ?? 0)
    .u8(parts.zero ?? 0)
    .u32(parts.pid ?? 100)
    .u64(parts.ackedAt ?? 0)
    .u64(parts.producedAt ?? parts.ackedAt ?? 0)
    .u64(parts.inputReceived ?? 0)
    .u64(parts.inputHandedOn ?? parts.inputReceived ?? 0)
    .bytes(parts.exit ?? Buffer.alloc(40))
    .finish();
}

export function welcomePayload(nonce: Buffer, entries: readonly EntryParts[] = [], version = 1): Buffer {
  const payload = new PayloadWriter().u32(version).bytes(nonce).u32(entries.length);
  for (const entry of entries) payload.bytes(entryPayload(entry));
  return payload.finish();
}

const u64 = (value: number | bigint): Buffer => new PayloadWriter().u64(value).finish();

export const guestFrame = {
  welcome: (nonce: Buffer, entries: readonly EntryParts[] = [], version = 1) =>
    rawFrame(toHost.WELCOME, 0, welcomePayload(nonce, entries, version)),
  started: (id: number, pid = 100) => rawFrame(toHost.STARTED, id, new PayloadWriter().u32(pid).finish()),
  failed: (id: number, errno: number, what: string) =>
    rawFrame(toHost.FAILED, id, new PayloadWriter().u32(errno).str(what).finish()),
  output: (id: number, at: number | bigint, offset: number | bigint, output: number, data: Uint8Array | string) =>
    rawFrame(toHost.OUTPUT, id, new PayloadWriter().u64(at).u64(offset).u8(output).bytes(Buffer.from(data)).finish()),
  stdinAck: (id: number, offset: number | bigint) => rawFrame(toHost.STDIN_ACK, id, u64(offset)),
  stdinClosed: (id: number, offset: number | bigint) => rawFrame(toHost.STDIN_CLOSED, id, u64(offset)),
  exit: (id: number, parts: ExitParts = {}) => rawFrame(toHost.EXIT, id, exitPayload(parts)),
  end: (id: number, at: number | bigint) => rawFrame(toHost.END, id, u64(at)),
  connect: (id: number, host: string, port: number, protocol = 1) =>
    rawFrame(toHost.CONNECT, id, new PayloadWriter().u8(protocol).u16(port).str(host).finish()),
  done: (id: number) => rawFrame(toHost.DONE, id),
  counted: (id: number, processes: number, { streams = 0, bufferedBytes = 0, ofOneUser = processes } = {}) =>
    rawFrame(
      toHost.COUNTED,
      id,
      new PayloadWriter().u32(processes).u32(streams).u64(bufferedBytes).u32(ofOneUser).finish(),
    ),
  heldBy: (id: number, holders: readonly { pid: number; streamId: number; command: string }[]) => {
    const payload = new PayloadWriter().u32(holders.length);
    for (const { pid, streamId, command } of holders) payload.u32(pid).u32(streamId).str(command);
    return rawFrame(toHost.HELD_BY, id, payload.finish());
  },
  nodesAre: (id: number, entries: readonly Uint8Array[]) => {
    const payload = new PayloadWriter().u32(entries.length);
    for (const entry of entries) payload.str(entry);
    return rawFrame(toHost.NODES_ARE, id, payload.finish());
  },
  ready: (id: number) => rawFrame(toHost.READY, id),
  pong: (id: number, payload: Uint8Array) => rawFrame(toHost.PONG, id, payload),
};

/** Returns one frame of each type, as an honest guest would send them. */
export function everyGuestFrame(nonce: Buffer): Buffer[] {
  return [
    guestFrame.welcome(nonce, [
      { id: 3, ackedAt: 5, producedAt: 9 },
      { id: 4, state: 2, exit: exitPayload({ code: 7 }) },
    ]),
    guestFrame.started(5, 123),
    guestFrame.failed(6, 2, "exec nothing"),
    guestFrame.output(5, 0, 0, 1, "hello\n"),
    guestFrame.output(5, 6, 0, 2, Buffer.alloc(65_536, 7)),
    guestFrame.stdinAck(5, 10),
    guestFrame.stdinClosed(5, 10),
    guestFrame.exit(5, { kind: 1, code: 9, flags: 1, at: 65_542, userUs: 1_500, systemUs: 2_500, peakKib: 3 }),
    guestFrame.end(5, 65_542),
    guestFrame.connect(0x8000_0001, "example.org", 443),
    guestFrame.done(7),
    guestFrame.counted(8, 3, { streams: 2, bufferedBytes: 4096, ofOneUser: 1 }),
    guestFrame.heldBy(9, [{ pid: 10, streamId: 5, command: "sleep 1" }]),
    guestFrame.nodesAre(12, [Buffer.from("entry"), Buffer.alloc(300, 1)]),
    guestFrame.ready(10),
    guestFrame.pong(11, Buffer.from("12345678")),
  ];
}
