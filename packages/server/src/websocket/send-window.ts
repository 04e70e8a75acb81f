/**
 * What one channel may have on the way. A sender asks for room before each piece; a reader that does not acknowledge
 * makes it wait, and whatever it reads from waits in turn.
 */
export class SendWindow {
  #windowBytes: number;
  /**
   * Bytes that are not acknowledged. However many pieces they were sent in, what follows without a gap is one run: only
   * dropped bytes make another.
   */
  #onTheWay: { startsAt: number; endsAt: number }[] = [];
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
    const startsAt = endsAt - bytes;
    const last = this.#onTheWay.at(-1);
    if (last?.endsAt === startsAt) last.endsAt = endsAt;
    else this.#onTheWay.push({ startsAt, endsAt });
    this.#bytes += bytes;
  }

  /** Everything below `at` has arrived. */
  acknowledge(at: number): void {
    for (let first = this.#onTheWay[0]; first !== undefined && first.startsAt < at; first = this.#onTheWay[0]) {
      const arrivedAt = Math.min(at, first.endsAt);
      this.#bytes -= arrivedAt - first.startsAt;
      first.startsAt = arrivedAt;
      if (arrivedAt < first.endsAt) break;
      this.#onTheWay.shift();
    }
    this.#wake();
  }
}
