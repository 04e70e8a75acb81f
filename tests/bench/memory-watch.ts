/** The interval is short enough to see the memory that a burst of output takes. */
const sampleMs = 20;

/**
 * Measures how far the resident memory of this process, including buffers outside of the heap, rises above its level at
 * the start.
 */
export class MemoryWatch implements Disposable {
  #baseBytes = process.memoryUsage.rss();
  #peakBytes = this.#baseBytes;
  #timer: NodeJS.Timeout | undefined;

  /** Takes the present memory as the level from which the rise is counted. */
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
