/** Reads exact numbers of bytes from a stream of pieces of any size. */
export class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Resolves with `bytes` bytes, or with `undefined` where the stream ends before the first of them. */
  async take(bytes: number): Promise<Buffer | undefined> {
    const pieces: Buffer[] = [];
    let got = 0;
    for await (const piece of this.pieces(bytes)) {
      pieces.push(piece);
      got += piece.length;
    }
    if (got === 0 && bytes > 0) return undefined;
    if (got < bytes) throw cutOff();
    return Buffer.concat(pieces);
  }

  /** Yields `bytes` bytes as they come; fewer where the stream ends. */
  async *pieces(bytes: number): AsyncGenerator<Buffer, void, undefined> {
    let left = bytes;
    while (left > 0) {
      if (this.#rest.length === 0) {
        const next = await this.#source.next();
        if (next.done === true) return;
        this.#rest = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
        continue;
      }
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }
}

export function cutOff(): Error {
  return new Error("the archive ends too early");
}
