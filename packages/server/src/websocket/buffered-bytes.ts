/** Counts the bytes that the server buffers for one client, over all of its channels. */
export class BufferedBytes {
  readonly #mostBytes: number;
  #bytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** Reserves bytes. The returned function releases them, once; it is undefined if there would be too many. */
  take(bytes: number): (() => void) | undefined {
    if (this.#bytes + bytes > this.#mostBytes) return undefined;
    this.#bytes += bytes;
    let isReserved = true;
    return () => {
      if (isReserved) this.#bytes -= bytes;
      isReserved = false;
    };
  }
}
