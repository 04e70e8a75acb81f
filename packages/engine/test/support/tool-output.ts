import { protocolConstants, spawnFlags } from "../../src/guest/frames.ts";
import { PayloadReader, PayloadWriter } from "../../src/guest/wire.ts";
import type { FakeGuest } from "./fake-guest.ts";
import { guestFrame, type ExitParts } from "./guest-frames.ts";

export interface EntryText {
  name: string;
  type?: string;
  mode?: number;
  size?: number | bigint;
  modifiedNs?: bigint;
  target?: string;
}

/** Makes a record as `stat` and `list` write it. */
export function entryRecord({
  name,
  type = "f",
  mode = 0o644,
  size = 0,
  modifiedNs = 0n,
  target = "",
}: EntryText): Buffer {
  return new PayloadWriter()
    .u8(type.charCodeAt(0))
    .u32(mode)
    .u32(1000)
    .u32(1001)
    .u32(1)
    .u64(size)
    .u64(0xffff_ffff_ffff_fff0n)
    .u64(BigInt.asUintN(64, modifiedNs))
    .str(name)
    .str(target)
    .finish();
}

/** Makes a record as `watch` writes it. */
export function eventRecord({ cursor = 1, kind = 1, isDirectory = 0, cookie = 0, path = "a" } = {}): Buffer {
  return new PayloadWriter().u64(cursor).u8(kind).u8(isDirectory).u32(cookie).str(path).finish();
}

export function framed(...records: Buffer[]): Buffer {
  return Buffer.concat(records.map((record) => new PayloadWriter().u32(record.byteLength).bytes(record).finish()));
}

/** A tool whose behaviour a test defines. */
export class FakeTool {
  readonly id: number;
  readonly argv: string[];
  readonly user: string;
  readonly hasStdin: boolean;
  #guest: FakeGuest;
  #at = 0;
  #acked = 0;
  #offsets = { 1: 0, 2: 0 };

  /** Waits for the host to start a tool. */
  static async start(guest: FakeGuest): Promise<FakeTool> {
    const { id, payload } = await guest.until("SPAWN");
    await guest.send(guestFrame.started(id));
    return new FakeTool(guest, id, payload);
  }

  private constructor(guest: FakeGuest, id: number, payload: Buffer) {
    const reader = new PayloadReader(payload);
    const flags = reader.u32();
    if ((flags & spawnFlags.SPAWN_TOOL) === 0) throw new Error("What was started is no tool");
    reader.bytes(16);
    this.#guest = guest;
    this.id = id;
    this.hasStdin = (flags & spawnFlags.SPAWN_STDIN) !== 0;
    this.user = reader.str(4096);
    reader.str(4096);
    reader.u32();
    this.argv = Array.from({ length: reader.u32() }, () => reader.str(65_536));
  }

  /** Writes as fast as the host takes it. */
  async write(
    bytes: Buffer,
    { output = 1, pieceBytes = 65_536 }: { output?: 1 | 2; pieceBytes?: number } = {},
  ): Promise<void> {
    for (let start = 0; start < bytes.byteLength; start += pieceBytes) {
      const piece = bytes.subarray(start, start + pieceBytes);
      while (this.#at + piece.byteLength - this.#acked > protocolConstants.WINDOW_DEFAULT) {
        this.#acked = Number((await this.#guest.until("ACK")).payload.readBigUInt64LE());
      }
      await this.#guest.send(guestFrame.output(this.id, this.#at, this.#offsets[output], output, piece));
      this.#at += piece.byteLength;
      this.#offsets[output] += piece.byteLength;
    }
  }

  complain(text: string): Promise<void> {
    return this.write(Buffer.from(text), { output: 2 });
  }

  /** Reads stdin to its end. */
  async readAll(): Promise<string> {
    const parts: Buffer[] = [];
    for (;;) {
      const { name, payload } = await this.#guest.nextOf("STDIN", "STDIN_EOF");
      if (name === "STDIN_EOF") return Buffer.concat(parts).toString();
      parts.push(payload.subarray(8));
    }
  }

  exit(parts: ExitParts = {}): Promise<void> {
    return this.#guest.send(guestFrame.end(this.id, this.#at), guestFrame.exit(this.id, { at: this.#at, ...parts }));
  }

  /** Waits until the host kills it, and dies. */
  async dieWhenKilled(): Promise<void> {
    const { id, payload } = await this.#guest.until("SIGNAL");
    if (id !== this.id || payload.readUInt32LE() !== 9) throw new Error("That was no SIGKILL for this tool");
    await this.exit({ kind: 1, code: 9 });
  }
}
