/**
 * Limits the unacknowledged bytes of one channel. A sender asks for room before each piece; a reader that does not
 * acknowledge makes it wait, and so its source waits.
 */
export class SendWindow {
  #windowBytes: number;
  /**
   * The unacknowledged bytes. Pieces that follow each other without a gap are one range: only dropped bytes begin
   * another.
   */
  #unacknowledged: { startsAt: number; endsAt: number }[] = [];
  #bytes = 0;
  #wake: () => void = () => undefined;

  constructor(windowBytes: number) {
    this.#windowBytes = windowBytes;
  }

  /** Waits until something may be sent, and returns how many bytes may. */
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
    const last = this.#unacknowledged.at(-1);
    if (last?.endsAt === startsAt) last.endsAt = endsAt;
    else this.#unacknowledged.push({ startsAt, endsAt });
    this.#bytes += bytes;
  }

  /** Records that everything below `at` has arrived. */
  acknowledge(at: number): void {
    for (
      let first = this.#unacknowledged[0];
      first !== undefined && first.startsAt < at;
      first = this.#unacknowledged[0]
    ) {
      const arrivedAt = Math.min(at, first.endsAt);
      this.#bytes -= arrivedAt - first.startsAt;
      first.startsAt = arrivedAt;
      if (arrivedAt < first.endsAt) break;
      this.#unacknowledged.shift();
    }
    this.#wake();
  }
}
