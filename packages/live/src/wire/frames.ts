/** Frames of the wire protocol: four bytes with the length, most significant first, and JSON in UTF-8. */
const headerBytes = 4;

export function encodeFrame(message: unknown, maxBytes: number): Uint8Array {
  const body = Buffer.from(JSON.stringify(message));
  if (body.byteLength > maxBytes) throw new RangeError(`a message has ${body.byteLength} bytes, ${maxBytes} at most`);
  const frame = Buffer.allocUnsafe(headerBytes + body.byteLength);
  frame.writeUInt32BE(body.byteLength, 0);
  body.copy(frame, headerBytes);
  return frame;
}

/** Puts frames together from bytes that arrive in any pieces. */
export class FrameReader {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Returns the messages that are complete. Throws for a frame that is too long or is not JSON. */
  push(chunk: Uint8Array): unknown[] {
    this.#chunks.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    this.#bytes += chunk.byteLength;
    const messages: unknown[] = [];
    for (;;) {
      if (this.#bytes < headerBytes) return messages;
      const length = this.#peek(headerBytes).readUInt32BE(0);
      if (length > this.#maxBytes) throw new RangeError(`a message has ${length} bytes, ${this.#maxBytes} at most`);
      if (this.#bytes < headerBytes + length) return messages;
      const frame = this.#take(headerBytes + length);
      messages.push(JSON.parse(frame.toString("utf8", headerBytes)));
    }
  }

  /** True when the stream may end here: no frame is incomplete. */
  get isEmpty(): boolean {
    return this.#bytes === 0;
  }

  #peek(length: number): Buffer {
    const [first] = this.#chunks;
    if (first !== undefined && first.byteLength >= length) return first;
    // Chunks are joined only when a header is spread over several; a body is joined once, when it is complete.
    let needed = 0;
    let count = 0;
    while (needed < length) needed += this.#chunks[count++]?.byteLength ?? length;
    this.#chunks.splice(0, count, Buffer.concat(this.#chunks.slice(0, count)));
    return this.#chunks[0] ?? Buffer.alloc(0);
  }

  #take(length: number): Buffer {
    const joined = this.#peek(length);
    const rest = joined.subarray(length);
    if (rest.byteLength > 0) this.#chunks[0] = rest;
    else this.#chunks.shift();
    this.#bytes -= length;
    return joined.subarray(0, length);
  }
}
