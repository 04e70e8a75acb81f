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
  /** The end of what was hunted through, where a `WELCOME` may begin. */
  #hunted: Buffer = Buffer.alloc(0);
  #header = Buffer.alloc(headerBytes);
  #headerFilled = 0;
  /** Payload and trailer of the frame whose header is complete. */
  #body: Buffer | undefined;
  #bodyFilled = 0;

  constructor(nonce: Buffer) {
    this.#nonce = nonce;
  }

  /** Bytes that are kept for an incomplete frame. */
  get heldBytes(): number {
    return this.#hunted.byteLength + this.#headerFilled + this.#bodyFilled;
  }

  /** Hunts again, for a new greeting on the same stream. */
  expectWelcome(nonce: Buffer): void {
    this.#nonce = nonce;
    this.#hunted = Buffer.alloc(0);
    this.#headerFilled = this.#bodyFilled = 0;
    this.#body = undefined;
  }

  /** The frames that `chunk` completes. Their payloads belong to the receiver; the chunk is free for other use when the last was taken. */
  *push(chunk: Buffer): Generator<Frame, void, void> {
    let rest = chunk;
    while (rest.byteLength > 0) {
      if (this.#nonce !== undefined) {
        const welcome = this.#huntWelcome(rest, this.#nonce);
        if (welcome === undefined) return;
        this.#nonce = undefined;
        rest = welcome;
      }
      rest = rest.subarray(this.#fill(rest));
      const frame = this.#takeFrame();
      // Whoever gets it may ask for a new greeting: what follows is hunted through then.
      if (frame !== undefined) yield frame;
    }
  }

  /** What is left from the expected `WELCOME` on, or undefined when it has not come yet. */
  #huntWelcome(chunk: Buffer, nonce: Buffer): Buffer | undefined {
    const data = this.#hunted.byteLength === 0 ? chunk : Buffer.concat([this.#hunted, chunk]);
    this.#hunted = Buffer.alloc(0);
    for (let found = data.indexOf(nonce); found !== -1; found = data.indexOf(nonce, found + 1)) {
      const start = found - nonceOffset;
      if (start >= 0 && data.readUInt32LE(start) === frameMagic && data.readUInt8(start + 8) === toHost.WELCOME) {
        return data.subarray(start);
      }
    }
    // The frame may straddle this chunk and the next.
    const kept = data.subarray(Math.max(0, data.byteLength - (nonceOffset + nonce.byteLength - 1)));
    this.#hunted = Buffer.from(kept);
    return undefined;
  }

  /** Takes what the frame under way still needs, and says how much that was. */
  #fill(data: Buffer): number {
    let taken = 0;
    if (this.#body === undefined) {
      taken = data.copy(this.#header, this.#headerFilled, 0, headerBytes - this.#headerFilled);
      this.#headerFilled += taken;
      if (this.#headerFilled < headerBytes) return taken;
      this.#body = Buffer.allocUnsafe(bodySize(this.#header));
      this.#bodyFilled = 0;
    }
    const copied = data.copy(this.#body, this.#bodyFilled, taken);
    this.#bodyFilled += copied;
    return taken + copied;
  }

  #takeFrame(): Frame | undefined {
    const body = this.#body;
    if (body === undefined || this.#bodyFilled < body.byteLength) return undefined;
    this.#body = undefined;
    this.#headerFilled = this.#bodyFilled = 0;
    return readFrame(this.#header, body);
  }
}

function bodySize(header: Buffer): number {
  if (header.readUInt32LE(0) !== frameMagic) throw new MalformedPayload("Frame does not begin with the magic number");
  const length = header.readUInt32LE(4);
  if (length > protocolConstants.MAX_TO_HOST) throw new MalformedPayload(`Frame of ${length} bytes`);
  if (header.readUIntLE(9, 3) !== 0) throw new MalformedPayload("Frame header has bits that must be zero");
  return length + trailerBytes;
}

function readFrame(header: Buffer, body: Buffer): Frame {
  const type = header.readUInt8(8);
  const id = header.readUInt32LE(12);
  const payload = body.subarray(0, body.byteLength - trailerBytes);
  if (body.readUInt32LE(payload.byteLength) !== frameTrailer(type, id, payload.byteLength)) {
    throw new MalformedPayload("Frame trailer is wrong");
  }
  return { type, id, payload };
}
