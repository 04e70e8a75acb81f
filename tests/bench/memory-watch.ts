/** Short enough to see what a burst of output piles up. */
const sampleMs = 20;

/**
 * Watches how far the resident memory of this process, buffers outside of the heap included, rises above where it
 * began.
 */
export class MemoryWatch implements Disposable {
  #baseBytes = process.memoryUsage.rss();
  #peakBytes = this.#baseBytes;
  #timer: NodeJS.Timeout | undefined;

  /** Counts what happens from now on. */
  start(): void {
    this.sample();
    this.#timer ??= setInterval(() => this.sample(), sampleMs);
  }

  stop(): void {
    this.sample();
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  sample(): void {
    this.#peakBytes = Math.max(this.#peakBytes, process.memoryUsage.rss());
  }

  get growthBytes(): number {
    return this.#peakBytes - this.#baseBytes;
  }

  [Symbol.dispose](): void {
    this.stop();
  }
}
