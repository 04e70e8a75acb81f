/** Writes and reads the integers and strings of frame payloads and tool records. */

export class PayloadWriter {
  #parts: Buffer[] = [];

  u8(value: number): this {
    return this.#push(1, (buffer) => buffer.writeUInt8(value));
  }

  u16(value: number): this {
    return this.#push(2, (buffer) => buffer.writeUInt16LE(value));
  }

  u32(value: number): this {
    return this.#push(4, (buffer) => buffer.writeUInt32LE(value));
  }

  u64(value: number | bigint): this {
    return this.#push(8, (buffer) => buffer.writeBigUInt64LE(BigInt(value)));
  }

  bytes(value: Uint8Array): this {
    this.#parts.push(Buffer.from(value.buffer, value.byteOffset, value.byteLength));
    return this;
  }

  str(value: string | Uint8Array): this {
    const bytes = typeof value === "string" ? Buffer.from(value) : value;
    return this.u32(bytes.byteLength).bytes(bytes);
  }

  finish(): Buffer {
    return Buffer.concat(this.#parts);
  }

  #push(size: number, write: (buffer: Buffer) => void): this {
    const buffer = Buffer.allocUnsafe(size);
    write(buffer);
    this.#parts.push(buffer);
    return this;
  }
}

/** A malformed payload. The reader of the frame decides what that means. */
export class MalformedPayload extends Error {}

/** Reads what a sandbox wrote: every length is checked, and bytes that are left over are an error. */
export class PayloadReader {
  #buffer: Buffer;
  #position = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  u8(): number {
    return this.#buffer.readUInt8(this.#take(1));
  }

  u16(): number {
    return this.#buffer.readUInt16LE(this.#take(2));
  }

  u32(): number {
    return this.#buffer.readUInt32LE(this.#take(4));
  }

  /** Offsets and times are far below 2^53, so a larger number is invalid. */
  u64(): number {
    const value = this.#buffer.readBigUInt64LE(this.#take(8));
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new MalformedPayload(`Number ${value} is out of range`);
    return Number(value);
  }

  bigU64(): bigint {
    return this.#buffer.readBigUInt64LE(this.#take(8));
  }

  bytes(length: number): Buffer {
    const start = this.#take(length);
    return this.#buffer.subarray(start, start + length);
  }

  str(maxBytes: number): string {
    const length = this.u32();
    if (length > maxBytes)
      throw new MalformedPayload(`String of ${length} bytes where at most ${maxBytes} are allowed`);
    const bytes = this.bytes(length);
    if (bytes.includes(0)) throw new MalformedPayload("String with a NUL in it");
    return bytes.toString("utf8");
  }

  rest(): Buffer {
    return this.bytes(this.#buffer.byteLength - this.#position);
  }

  get isAtEnd(): boolean {
    return this.#position === this.#buffer.byteLength;
  }

  end(): void {
    const left = this.#buffer.byteLength - this.#position;
    if (left !== 0) throw new MalformedPayload(`${left} bytes too many`);
  }

  #take(length: number): number {
    const start = this.#position;
    if (length < 0 || start + length > this.#buffer.byteLength) throw new MalformedPayload("Payload ends too early");
    this.#position = start + length;
    return start;
  }
}
