import { execFileSync } from "node:child_process";
import { constants, mkdtempSync, openSync, rmSync } from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ChannelOptions } from "../../src/guest/channel-options.ts";
import { GuestChannel } from "../../src/guest/channel.ts";
import {
  frameMagic,
  frameTrailer,
  headerBytes,
  protocolConstants,
  toGuest,
  trailerBytes,
} from "../../src/guest/frames.ts";
import { guestFrame, type EntryParts } from "./guest-frames.ts";

export type HostFrameName = keyof typeof toGuest;

/** A frame as the guest receives it. */
export interface HostFrame {
  name: HostFrameName;
  id: number;
  payload: Buffer;
}

const names = new Map<number, HostFrameName>(
  Object.entries(toGuest).map(([name, type]) => [type, name as HostFrameName]),
);

/**
 * The guest's end of a channel, on real FIFOs, that sends what a test wants. It reads as the protocol page requires of
 * a guest: after invalid bytes it accepts nothing but the next HELLO.
 */
export class FakeGuest implements Disposable {
  readonly paths: { in: string; out: string };
  /** The number of invalid bytes. */
  skippedBytes = 0;
  #dir: string;
  #reader: Socket;
  #writer: Socket;
  #held: Buffer = Buffer.alloc(0);
  #isHunting = true;
  #frames: HostFrame[] = [];
  #wake: (() => void) | undefined;

  constructor() {
    this.#dir = mkdtempSync(join(tmpdir(), "atoll-fake-guest-"));
    this.paths = { in: join(this.#dir, "in"), out: join(this.#dir, "out") };
    execFileSync("sh", ["-c", 'mkfifo "$0" "$1"', this.paths.in, this.paths.out]);
    const flags = constants.O_RDWR | constants.O_NONBLOCK;
    this.#reader = new Socket({ fd: openSync(this.paths.in, flags), readable: true, writable: false });
    this.#writer = new Socket({ fd: openSync(this.paths.out, flags), readable: false, writable: true });
    this.#reader.on("data", (chunk: Buffer) => {
      this.#held = Buffer.concat([this.#held, chunk]);
      this.#takeFrames();
    });
  }

  /** Resolves when the host's FIFO has taken all bytes. */
  async send(...frames: Buffer[]): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#writer.write(Buffer.concat(frames), (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
  }

  /** Resolves to the next frame of the host, which must have this name. */
  next(name: HostFrameName): Promise<HostFrame> {
    return this.nextOf(name);
  }

  /** Resolves to the next frame of the host, which must have one of these names. */
  async nextOf(...names: HostFrameName[]): Promise<HostFrame> {
    const frame = await this.#shift();
    if (names.includes(frame.name)) return frame;
    throw new Error(`The host said ${frame.name} where ${names.join(" or ")} was expected`);
  }

  /** Resolves to the next frame of this name; earlier ones are ignored. */
  async until(name: HostFrameName): Promise<HostFrame> {
    for (;;) {
      const frame = await this.#shift();
      if (frame.name === name) return frame;
    }
  }

  /** Waits for the host's HELLO and welcomes it. */
  async greet({
    entries = [],
    version,
  }: { entries?: readonly EntryParts[]; version?: number } = {}): Promise<HostFrame> {
    const hello = await this.until("HELLO");
    await this.send(guestFrame.welcome(hello.payload.subarray(4, 20), entries, version));
    return hello;
  }

  /** Waits for a SPAWN and starts it. Resolves to the stream's id. */
  async start(pid = 100): Promise<number> {
    const { id } = await this.next("SPAWN");
    await this.send(guestFrame.started(id, pid));
    return id;
  }

  /** Checks that the channel works: a ping is answered. Earlier frames are ignored. */
  async answersPing(channel: GuestChannel): Promise<void> {
    const ping = channel.ping(new AbortController().signal);
    await this.#pong(await this.until("PING"));
    await ping;
  }

  /** Checks that the channel works, and has sent nothing before. */
  async hearsOnlyPing(channel: GuestChannel): Promise<void> {
    const ping = channel.ping(new AbortController().signal);
    await this.#pong(await this.next("PING"));
    await ping;
  }

  /** Leaves the host's frames in the FIFO. */
  stopReading(): void {
    this.#reader.pause();
  }

  /** Ends the sandbox's last process. */
  die(): void {
    this.#reader.destroy();
    this.#writer.destroy();
  }

  [Symbol.dispose](): void {
    this.die();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  async #pong({ id, payload }: HostFrame): Promise<void> {
    await this.send(guestFrame.pong(id, payload));
  }

  async #shift(): Promise<HostFrame> {
    for (;;) {
      const frame = this.#frames.shift();
      if (frame !== undefined) return frame;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #takeFrames(): void {
    for (;;) {
      if (this.#isHunting) this.#hunt();
      const frame = this.#isHunting ? undefined : this.#takeFrame();
      if (frame === undefined) {
        if (this.#isHunting && this.#held.byteLength >= headerBytes) continue;
        return;
      }
      this.#frames.push(frame);
      this.#wake?.();
    }
  }

  #takeFrame(): HostFrame | undefined {
    if (this.#held.byteLength < headerBytes) return undefined;
    const [magic, length, type, id] = [0, 4, 8, 12].map((offset) => this.#held.readUInt32LE(offset));
    const name = names.get(type ?? 0);
    if (magic !== frameMagic || length === undefined || length > protocolConstants.MAX_TO_GUEST || name === undefined) {
      return this.#skip(1);
    }
    const size = headerBytes + length + trailerBytes;
    if (this.#held.byteLength < size) return undefined;
    if (this.#held.readUInt32LE(size - trailerBytes) !== frameTrailer(type ?? 0, id ?? 0, length))
      return this.#skip(size);
    const payload = Buffer.from(this.#held.subarray(headerBytes, size - trailerBytes));
    this.#held = this.#held.subarray(size);
    return { name, id: id ?? 0, payload };
  }

  #skip(bytes: number): undefined {
    this.skippedBytes += bytes;
    this.#held = this.#held.subarray(bytes);
    this.#isHunting = true;
  }

  /** Moves to the next position that may be a HELLO. */
  #hunt(): void {
    const hello = Buffer.from([0x41, 0x54, 0x4f, 0x4c]);
    const found = this.#held.indexOf(hello);
    const kept = found === -1 ? Math.min(this.#held.byteLength, hello.byteLength - 1) : this.#held.byteLength - found;
    this.skippedBytes += this.#held.byteLength - kept;
    this.#held = this.#held.subarray(this.#held.byteLength - kept);
    if (found === -1 || this.#held.byteLength < headerBytes) return;
    if (this.#held.readUInt8(8) === toGuest.HELLO) this.#isHunting = false;
    else this.#skip(1);
  }
}

/** Opens a channel to a guest that has welcomed it. */
export async function openChannel(
  guest: FakeGuest,
  options: Partial<ChannelOptions> & { entries?: readonly EntryParts[] } = {},
): Promise<GuestChannel> {
  const { entries = [], ...rest } = options;
  const [channel] = await Promise.all([
    GuestChannel.open({
      paths: guest.paths,
      isFirstHost: true,
      signal: new AbortController().signal,
      ...rest,
    }),
    guest.greet({ entries }),
  ]);
  return channel;
}
