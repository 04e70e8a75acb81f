interface Wait {
  sinceMs: number;
  timer?: ReturnType<typeof setTimeout>;
}

/**
 * Channels that the server refused for now, as those of a key that has asked too often, until they are asked for again.
 */
export class RetryLater {
  readonly #forMs: number;
  readonly #waits = new Map<number, Wait>();

  /** `forMs`: a channel is put off for so long in all. */
  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** False: it would be for too long. */
  wait(channel: number, ms: number, askAgain: () => void): boolean {
    const { sinceMs, timer } = this.#waits.get(channel) ?? { sinceMs: Date.now() };
    clearTimeout(timer);
    if (Date.now() + ms - sinceMs > this.#forMs) return false;
    // Somebody waits for the channel, so this timer keeps the program alive.
    this.#waits.set(channel, { sinceMs, timer: setTimeout(askAgain, ms) });
    return true;
  }

  /** The server took it, or nobody wants it any more. */
  forget(channel: number): void {
    clearTimeout(this.#waits.get(channel)?.timer);
    this.#waits.delete(channel);
  }

  /** The connection is gone: the next one asks for every channel. */
  stop(): void {
    for (const { timer } of this.#waits.values()) clearTimeout(timer);
  }

  clear(): void {
    this.stop();
    this.#waits.clear();
  }
}
