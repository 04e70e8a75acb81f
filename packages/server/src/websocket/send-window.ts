/**
 * What one channel may have on the way. A sender asks for room before each piece; a reader that does not acknowledge makes it
 * wait, and whatever it reads from waits in turn.
 */
export class SendWindow {
  #windowBytes: number;
  /** Pieces that are not acknowledged: where each ends, and how long it is. Bytes that were dropped have no length. */
  #onTheWay: { endsAt: number; bytes: number }[] = [];
  #bytes = 0;
  #wake: () => void = () => undefined;

  constructor(windowBytes: number) {
    this.#windowBytes = windowBytes;
  }

  /** Waits until something may be sent; the bytes that may. */
  async room(signal: AbortSignal): Promise<number> {
    const wake = (): void => this.#wake();
    signal.addEventListener("abort", wake);
    try {
      for (;;) {
        signal.throwIfAborted();
        if (this.#bytes < this.#windowBytes) return this.#windowBytes - this.#bytes;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } finally {
      signal.removeEventListener("abort", wake);
    }
  }

  sent(endsAt: number, bytes: number): void {
    this.#onTheWay.push({ endsAt, bytes });
    this.#bytes += bytes;
  }

  /** Everything below `at` has arrived. */
  acknowledge(at: number): void {
    let first = this.#onTheWay[0];
    while (first !== undefined && first.endsAt <= at) {
      this.#onTheWay.shift();
      this.#bytes -= first.bytes;
      first = this.#onTheWay[0];
    }
    this.#wake();
  }
}
