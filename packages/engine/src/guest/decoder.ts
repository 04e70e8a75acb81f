import {
  frameMagic,
  frameTrailer,
  headerBytes,
  protocolConstants,
  toHost,
  trailerBytes,
  type Frame,
} from "./frames.ts";
import { MalformedPayload } from "./wire.ts";

/** `WELCOME` carries the nonce behind its header and the version. */
const nonceOffset = headerBytes + 4;

/**
 * Turns the byte stream of a sandbox, which may be hostile, into frames. Holds at most one incomplete frame. Throws
 * `MalformedPayload` on the first byte that breaks the form; it cannot be used any further then.
 *
 * It begins by hunting: everything before the `WELCOME` with the expected nonce was meant for a host that is gone.
 */
export class FrameDecoder {
  #nonce: Buffer | undefined;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  /** How many bytes must be pending before it is worth looking at them again. */
  #needed = headerBytes;

  constructor(nonce: Buffer) {
    this.#nonce = nonce;
  }

  /** Bytes that are kept for an incomplete frame. */
  get heldBytes(): number {
    return this.#pendingBytes;
  }

  /** Hunts again, for a new greeting on the same stream. */
  expectWelcome(nonce: Buffer): void {
    this.#nonce = nonce;
    this.#keep(undefined);
  }

  /** The frames that `chunk` completes. Their payloads are views: copy what is kept for long. */
  *push(chunk: Buffer): Generator<Frame, void, void> {
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.byteLength;
    if (this.#pendingBytes < this.#needed) return;
    let data = this.#pending.length === 1 ? chunk : Buffer.concat(this.#pending, this.#pendingBytes);
    this.#keep(undefined);

    if (this.#nonce !== undefined) {
      const start = this.#huntWelcome(data, this.#nonce);
      if (start === undefined) return;
      this.#nonce = undefined;
      data = data.subarray(start);
    }
    while (data.byteLength >= headerBytes) {
      const size = frameSize(data);
      if (data.byteLength < size) {
        this.#keep(data, size);
        return;
      }
      const frame = readFrame(data, size);
      data = data.subarray(size);
      yield frame;
      // The reader of a frame may have asked for a new greeting: what follows belongs to the old one.
      if (this.#nonce !== undefined) {
        this.#keep(data);
        return;
      }
    }
    if (data.byteLength > 0) this.#keep(data);
  }

  #huntWelcome(data: Buffer, nonce: Buffer): number | undefined {
    for (let found = data.indexOf(nonce); found !== -1; found = data.indexOf(nonce, found + 1)) {
      const start = found - nonceOffset;
      if (start >= 0 && data.readUInt32LE(start) === frameMagic && data.readUInt8(start + 8) === toHost.WELCOME) {
        return start;
      }
    }
    // The frame may straddle this chunk and the next.
    this.#keep(data.subarray(Math.max(0, data.byteLength - (nonceOffset + nonce.byteLength - 1))));
    return undefined;
  }

  #keep(data: Buffer | undefined, needed = headerBytes): void {
    this.#pending = data === undefined || data.byteLength === 0 ? [] : [data];
    this.#pendingBytes = data?.byteLength ?? 0;
    this.#needed = needed;
  }
}

function frameSize(data: Buffer): number {
  if (data.readUInt32LE(0) !== frameMagic) throw new MalformedPayload("Frame does not begin with the magic number");
  const length = data.readUInt32LE(4);
  if (length > protocolConstants.MAX_TO_HOST) throw new MalformedPayload(`Frame of ${length} bytes`);
  if (data.readUIntLE(9, 3) !== 0) throw new MalformedPayload("Frame header has bits that must be zero");
  return headerBytes + length + trailerBytes;
}

function readFrame(data: Buffer, size: number): Frame {
  const type = data.readUInt8(8);
  const id = data.readUInt32LE(12);
  const payload = data.subarray(headerBytes, size - trailerBytes);
  if (data.readUInt32LE(size - trailerBytes) !== frameTrailer(type, id, payload.byteLength)) {
    throw new MalformedPayload("Frame trailer is wrong");
  }
  return { type, id, payload };
}
