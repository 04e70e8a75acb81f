import type { OutputEvent } from "@atoll/host";

/** The initial size of a ring: most commands have little output. */
const leastBytes = 4096;

type Piece = Pick<OutputEvent, "stream" | "offset" | "at"> & { bytes: number };

/**
 * Output that waits for its reader, in memory that is reused. Pushed bytes are copied, so that one byte does not keep
 * the chunk that it came in; what one stream wrote in a row is one piece. The ring grows to the most that ever waited
 * at once, and keeps that size.
 */
export class OutputRing {
  #memory = Buffer.alloc(0);
  /** The position of the oldest byte in memory. */
  #start = 0;
  #bytes = 0;
  #pieces: Piece[] = [];

  get isEmpty(): boolean {
    return this.#bytes === 0;
  }

  /** The memory of the ring, whether or not it has output in it. */
  get bufferedBytes(): number {
    return this.#memory.byteLength;
  }

  push({ stream, data, offset, at }: OutputEvent): void {
    this.#makeRoom(data.byteLength);
    const copied = data.copy(this.#memory, (this.#start + this.#bytes) % this.#memory.byteLength);
    data.copy(this.#memory, 0, copied);
    this.#bytes += data.byteLength;
    const last = this.#pieces.at(-1);
    if (last?.stream === stream) last.bytes += data.byteLength;
    else this.#pieces.push({ stream, offset, at, bytes: data.byteLength });
  }

  /**
   * Returns the oldest contiguous bytes of one stream, up to `most` of them: a view that is valid until they are
   * dropped.
   */
  first(most: number): OutputEvent | undefined {
    const [piece] = this.#pieces;
    if (piece === undefined) return undefined;
    const { stream, offset, at } = piece;
    const bytes = Math.min(piece.bytes, most, this.#memory.byteLength - this.#start);
    return { stream, offset, at, data: this.#memory.subarray(this.#start, this.#start + bytes) };
  }

  /** Drops that many bytes of what `first` returned; does nothing if the ring was cleared since. */
  drop(bytes: number): void {
    const [piece] = this.#pieces;
    if (piece === undefined) return;
    piece.bytes -= bytes;
    piece.offset += bytes;
    piece.at += bytes;
    if (piece.bytes === 0) this.#pieces.shift();
    this.#bytes -= bytes;
    // If the ring is empty it starts over, so that a stream which is read as it comes always uses the same memory.
    this.#start = this.isEmpty ? 0 : (this.#start + bytes) % this.#memory.byteLength;
  }

  clear(): void {
    this.#memory = Buffer.alloc(0);
    this.#start = this.#bytes = 0;
    this.#pieces = [];
  }

  /** Views that `first` returned stay valid: they refer to the old memory. */
  #makeRoom(bytes: number): void {
    const needed = this.#bytes + bytes;
    if (needed <= this.#memory.byteLength) return;
    const memory = Buffer.allocUnsafeSlow(Math.max(leastBytes, 2 ** Math.ceil(Math.log2(needed))));
    const copied = this.#memory.copy(
      memory,
      0,
      this.#start,
      Math.min(this.#memory.byteLength, this.#start + this.#bytes),
    );
    this.#memory.copy(memory, copied, 0, this.#bytes - copied);
    this.#memory = memory;
    this.#start = 0;
  }
}
