interface Wait {
  sinceMs: number;
  timer?: ReturnType<typeof setTimeout>;
}

/** Channels that the server refused for now, such as those of a key with too many requests, until they are retried. */
export class RetryLater {
  readonly #forMs: number;
  readonly #waits = new Map<number, Wait>();

  /** A channel is retried for at most `forMs` in all. */
  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** Returns false if the channel would have to wait for too long. */
  wait(channel: number, ms: number, askAgain: () => void): boolean {
    const { sinceMs, timer } = this.#waits.get(channel) ?? { sinceMs: Date.now() };
    clearTimeout(timer);
    if (Date.now() + ms - sinceMs > this.#forMs) return false;
    // A reader waits for the channel, so this timer keeps the program alive.
    this.#waits.set(channel, { sinceMs, timer: setTimeout(askAgain, ms) });
    return true;
  }

  /** The server has accepted the channel, or it is closed. */
  forget(channel: number): void {
    clearTimeout(this.#waits.get(channel)?.timer);
    this.#waits.delete(channel);
  }

  /** The connection is gone: the next one subscribes every channel. */
  stop(): void {
    for (const { timer } of this.#waits.values()) clearTimeout(timer);
  }

  clear(): void {
    this.stop();
    this.#waits.clear();
  }
}
