import {
  frameMagic,
  frameTrailer,
  headerBytes,
  protocolConstants,
  toHost,
  trailerBytes,
  typeOffset,
  type Frame,
} from "./frames.ts";
import { MalformedPayload } from "./wire.ts";

/** `WELCOME` has the nonce after its header and the version. */
const nonceOffset = headerBytes + 4;

/**
 * Splits the byte stream of a sandbox, which may be hostile, into frames. Keeps at most one incomplete frame. Throws
 * `MalformedPayload` on the first invalid byte; the decoder cannot be used after that.
 *
 * At first it skips everything before the `WELCOME` with the expected nonce, which was meant for an earlier host.
 */
export class FrameDecoder {
  #nonce: Buffer | undefined;
  /** The end of the skipped bytes, where a `WELCOME` may begin. */
  #hunted: Buffer = Buffer.alloc(0);
  /** The frame that came in several chunks, and how much of it has come. */
  #partial = Buffer.alloc(headerBytes);
  #filled = 0;

  constructor(nonce: Buffer) {
    this.#nonce = nonce;
  }

  /** The number of bytes that are kept for an incomplete frame. */
  get bufferedBytes(): number {
    return this.#hunted.byteLength + this.#filled;
  }

  /** Skips everything before the `WELCOME` of a new greeting on the same stream. */
  expectWelcome(nonce: Buffer): void {
    this.#nonce = nonce;
    this.#hunted = Buffer.alloc(0);
    this.#filled = 0;
  }

  /**
   * Returns the frames that `chunk` completes. Each payload is a view of the chunk, or of memory that is reused: it is
   * valid until the next frame is requested.
   */
  *push(chunk: Buffer): Generator<Frame, void, void> {
    let rest = chunk;
    while (rest.byteLength > 0) {
      if (this.#nonce !== undefined) {
        const welcome = this.#huntWelcome(rest, this.#nonce);
        if (welcome === undefined) return;
        this.#nonce = undefined;
        rest = welcome;
      }
      const size = this.#filled === 0 ? frameSize(rest) : undefined;
      let frame: Frame | undefined;
      if (size !== undefined && size <= rest.byteLength) {
        frame = readFrame(rest.subarray(0, size));
        rest = rest.subarray(size);
      } else {
        rest = rest.subarray(this.#collect(rest));
        frame = this.#takeCollected();
      }
      // The caller may expect a new greeting after this frame; then the rest is searched for its `WELCOME`.
      if (frame !== undefined) yield frame;
    }
  }

  /** Returns the bytes from the expected `WELCOME` on, or undefined when it has not come yet. */
  #huntWelcome(chunk: Buffer, nonce: Buffer): Buffer | undefined {
    const data = this.#hunted.byteLength === 0 ? chunk : Buffer.concat([this.#hunted, chunk]);
    this.#hunted = Buffer.alloc(0);
    for (let found = data.indexOf(nonce); found !== -1; found = data.indexOf(nonce, found + 1)) {
      const start = found - nonceOffset;
      if (start >= 0 && data.readUInt32LE(start) === frameMagic && data.readUInt8(start + 8) === toHost.WELCOME) {
        return data.subarray(start);
      }
    }
    // The frame may begin in this chunk and end in the next.
    const kept = data.subarray(Math.max(0, data.byteLength - (nonceOffset + nonce.byteLength - 1)));
    this.#hunted = Buffer.from(kept);
    return undefined;
  }

  /** Takes the bytes that the incomplete frame still needs, first of its header, and returns how many it took. */
  #collect(data: Buffer): number {
    const wanted = this.#collectedSize() ?? headerBytes;
    if (wanted > this.#partial.byteLength) {
      const larger = Buffer.allocUnsafeSlow(wanted);
      this.#partial.copy(larger, 0, 0, this.#filled);
      this.#partial = larger;
    }
    const taken = data.copy(this.#partial, this.#filled, 0, wanted - this.#filled);
    this.#filled += taken;
    return taken;
  }

  #takeCollected(): Frame | undefined {
    const size = this.#collectedSize();
    if (size === undefined || this.#filled < size) return undefined;
    this.#filled = 0;
    return readFrame(this.#partial.subarray(0, size));
  }

  #collectedSize(): number | undefined {
    return frameSize(this.#partial.subarray(0, this.#filled));
  }
}

/** Returns the size of the frame at the start of `bytes`; undefined if they are shorter than a header. */
function frameSize(bytes: Buffer): number | undefined {
  if (bytes.byteLength < headerBytes) return undefined;
  if (bytes.readUInt32LE(0) !== frameMagic) throw new MalformedPayload("Frame does not begin with the magic number");
  const length = bytes.readUInt32LE(4);
  if (length > protocolConstants.MAX_TO_HOST) throw new MalformedPayload(`Frame of ${length} bytes`);
  if (bytes.readUIntLE(9, 3) !== 0) throw new MalformedPayload("Frame header has bits that must be zero");
  return headerBytes + length + trailerBytes;
}

function readFrame(bytes: Buffer): Frame {
  const type = bytes.readUInt8(typeOffset);
  const id = bytes.readUInt32LE(12);
  const payload = bytes.subarray(headerBytes, bytes.byteLength - trailerBytes);
  if (bytes.readUInt32LE(headerBytes + payload.byteLength) !== frameTrailer(type, id, payload.byteLength)) {
    throw new MalformedPayload("Frame trailer is wrong");
  }
  return { type, id, payload };
}
