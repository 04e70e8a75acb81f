import { SandboxError, signalName, type ProcessExit } from "@atoll/protocol";
import { protocolConstants, toHost, type Frame } from "./frames.ts";
import { MalformedPayload, PayloadReader } from "./wire.ts";

/** One living or ended stream in a `WELCOME`. */
export interface StreamEntry {
  id: number;
  kind: "process" | "dialled" | "asked";
  state: "living" | "exited" | "waiting";
  hasPty: boolean;
  outputEnded: boolean;
  inputClosed: boolean;
  pid: number;
  ackedAt: number;
  producedAt: number;
  inputReceived: number;
  inputHandedOn: number;
  exit: ExitReport | undefined;
}

/** How a process ended; only the host knows whether the sandbox was out of memory. */
export interface ExitReport extends Omit<ProcessExit, "outOfMemory"> {
  /** All output below this position was produced before the end. */
  at: number;
}

export interface DeletedFileUser {
  pid: number;
  /** The stream of the process; 0 if no process of ours started it. */
  streamId: number;
  command: string;
}

export interface ProcessCounts {
  type: "counted";
  id: number;
  /** The number of processes; threads count as well. */
  processes: number;
  /** The number of the user who has the most. */
  ofOneUser: number;
  streams: number;
  bufferedBytes: number;
}

export type GuestMessage =
  | { type: "welcome"; version: number; streams: StreamEntry[] }
  | { type: "started"; id: number; pid: number }
  | { type: "failed"; id: number; errno: number; what: string }
  | { type: "output"; id: number; at: number; offset: number; output: 1 | 2; data: Buffer }
  | { type: "stdinAck"; id: number; offset: number }
  | { type: "stdinClosed"; id: number; offset: number }
  | { type: "exit"; id: number; exit: ExitReport }
  | { type: "end"; id: number; at: number }
  | { type: "connect"; id: number; protocol: "http-connect" | "http" | "socks5"; host: string; port: number }
  | { type: "done"; id: number }
  | ProcessCounts
  | { type: "heldBy"; id: number; holders: DeletedFileUser[] }
  | { type: "nodes"; id: number; entries: Buffer[] }
  | { type: "ready"; id: number }
  | { type: "pong"; id: number; payload: Buffer };

/**
 * Reads one frame of a guest, strictly: throws `MalformedPayload` for anything that the protocol page does not allow.
 * The data of output is a view of the frame; everything else is a copy.
 */
export function parseGuestFrame(frame: Frame): GuestMessage {
  const reader = new PayloadReader(frame.payload);
  const message = parseBody(frame, reader);
  reader.end();
  return message;
}

function parseBody({ type, id }: Frame, reader: PayloadReader): GuestMessage {
  switch (type) {
    case toHost.WELCOME:
      return readWelcome(id, reader);
    case toHost.STARTED:
      return { type: "started", id, pid: reader.u32() };
    case toHost.FAILED:
      return { type: "failed", id, errno: reader.u32(), what: reader.str(4096) };
    case toHost.OUTPUT:
      return readOutput(id, reader);
    case toHost.STDIN_ACK:
      return { type: "stdinAck", id, offset: reader.u64() };
    case toHost.STDIN_CLOSED:
      return { type: "stdinClosed", id, offset: reader.u64() };
    case toHost.EXIT:
      return { type: "exit", id, exit: readExit(reader) };
    case toHost.END:
      return { type: "end", id, at: reader.u64() };
    case toHost.CONNECT:
      return readConnect(id, reader);
    case toHost.DONE:
      return { type: "done", id };
    case toHost.COUNTED:
      return readCounted(id, reader);
    case toHost.HELD_BY:
      return { type: "heldBy", id, holders: readList(reader, 1024, readHolder) };
    case toHost.NODES_ARE:
      return { type: "nodes", id, entries: readList(reader, 2048, (list) => Buffer.from(list.bytes(list.u32()))) };
    case toHost.READY:
      return { type: "ready", id };
    case toHost.PONG:
      return { type: "pong", id, payload: Buffer.from(reader.rest()) };
    default:
      throw new MalformedPayload(`Frame of unknown type 0x${type.toString(16)}`);
  }
}

function readOutput(id: number, reader: PayloadReader): GuestMessage {
  const at = reader.u64();
  const offset = reader.u64();
  const output = reader.u8();
  if (output !== 1 && output !== 2) throw new MalformedPayload(`Output ${output} does not exist`);
  const data = reader.rest();
  if (data.byteLength === 0 || data.byteLength > protocolConstants.MAX_DATA) {
    throw new MalformedPayload(`Output of ${data.byteLength} bytes`);
  }
  return { type: "output", id, at, offset, output, data };
}

/** Threads count as processes. */
function readCounted(id: number, reader: PayloadReader): GuestMessage {
  const [processes, streams, bufferedBytes] = [reader.u32(), reader.u32(), reader.u64()];
  // A guest of an older version, in memory since it was paused, does not distinguish users.
  const ofOneUser = reader.isAtEnd ? processes : reader.u32();
  return { type: "counted", id, processes, ofOneUser, streams, bufferedBytes };
}

function readConnect(id: number, reader: PayloadReader): GuestMessage {
  const protocol = oneOf(reader.u8(), { 1: "http-connect", 2: "http", 3: "socks5" } as const);
  const port = reader.u16();
  const host = reader.str(255);
  // oxlint-disable-next-line no-control-regex -- control characters are what is refused
  if (port === 0 || host === "" || /[\u0000-\u0020\u007f]/u.test(host)) {
    throw new MalformedPayload("Connection requested to an invalid address");
  }
  return { type: "connect", id, protocol, host, port };
}

function readWelcome(id: number, reader: PayloadReader): GuestMessage {
  if (id !== 0) throw new MalformedPayload(`Welcome with id ${id}`);
  const version = reader.u32();
  reader.bytes(16);
  // A guest of another version may write its list in another form, so it is not parsed.
  if (version !== protocolConstants.VERSION) {
    reader.rest();
    return { type: "welcome", version, streams: [] };
  }
  return { type: "welcome", version, streams: readList(reader, protocolConstants.MAX_STREAMS, readEntry) };
}

function readEntry(reader: PayloadReader): StreamEntry {
  const id = reader.u32();
  const kind = oneOf(reader.u8(), { 1: "process", 2: "dialled", 3: "asked" } as const);
  const state = oneOf(reader.u8(), { 1: "living", 2: "exited", 3: "waiting" } as const);
  const flags = reader.u8();
  if (id === 0 || flags > 7 || reader.u8() !== 0) throw new MalformedPayload(`Entry of stream ${id} is malformed`);
  const entry = {
    id,
    kind,
    state,
    hasPty: (flags & 1) !== 0,
    outputEnded: (flags & 2) !== 0,
    inputClosed: (flags & 4) !== 0,
    pid: reader.u32(),
    ackedAt: reader.u64(),
    producedAt: reader.u64(),
    inputReceived: reader.u64(),
    inputHandedOn: reader.u64(),
    exit: state === "exited" ? readExit(reader) : (reader.bytes(40), undefined),
  };
  const heldOutput = entry.producedAt - entry.ackedAt;
  const heldInput = entry.inputReceived - entry.inputHandedOn;
  const isGuestId = id >= protocolConstants.GUEST_ID_BIT;
  if (
    heldOutput < 0 ||
    heldOutput > protocolConstants.WINDOW_MAX ||
    heldInput < 0 ||
    heldInput > protocolConstants.STDIN_WINDOW ||
    isGuestId !== (kind === "asked")
  ) {
    throw new MalformedPayload(`Entry of stream ${id} contradicts itself`);
  }
  return entry;
}

function readExit(reader: PayloadReader): ExitReport {
  const kind = reader.u8();
  const flags = reader.u8();
  const dumpedCore = reader.u8();
  if (flags > 1 || dumpedCore > 1 || reader.u8() !== 0) throw new MalformedPayload("End of a process is malformed");
  const code = reader.u32();
  if (kind > 1 || (kind === 0 && code > 255) || (kind === 1 && (code === 0 || code > 64))) {
    throw new MalformedPayload(`No process can end with ${kind === 0 ? "code" : "signal"} ${code}`);
  }
  return {
    exitCode: kind === 0 ? code : null,
    signal: kind === 0 ? null : signalName(code),
    timedOut: (flags & 1) !== 0,
    at: reader.u64(),
    cpuUserMs: reader.u64() / 1000,
    cpuSystemMs: reader.u64() / 1000,
    peakMemoryBytes: reader.u64() * 1024,
  };
}

function readHolder(reader: PayloadReader): DeletedFileUser {
  return { pid: reader.u32(), streamId: reader.u32(), command: reader.str(4096) };
}

function readList<T>(reader: PayloadReader, most: number, read: (reader: PayloadReader) => T): T[] {
  const count = reader.u32();
  if (count > most) throw new MalformedPayload(`List of ${count} where at most ${most} are allowed`);
  return Array.from({ length: count }, () => read(reader));
}

function oneOf<T extends Record<number, string>>(value: number, names: T): T[keyof T] {
  const name = names[value];
  if (name === undefined) throw new MalformedPayload(`${value} is not one of ${Object.values(names).join(", ")}`);
  return name as T[keyof T];
}

/** Checks the answer to a greeting. */
export function assertSpeaksOurVersion(message: GuestMessage): void {
  if (message.type !== "welcome") throw new Error(`Greeting answered with ${message.type}`);
  if (message.version === protocolConstants.VERSION) return;
  throw new SandboxError("unsupported", `Cannot talk to a guest of protocol version ${message.version}`, {
    suggestion: `This host speaks version ${protocolConstants.VERSION}: end the sandbox and create it again.`,
  });
}
