/** Lets a burst through at once, and from then on so many a second. Who comes too fast waits, in order. */
export class Pace {
  #perSecond: number;
  #burst: number;
  /** When the last turn that was given out is due. */
  #dueMs = 0;

  constructor({ perSecond, burst }: { perSecond: number; burst: number }) {
    this.#perSecond = perSecond;
    this.#burst = burst;
  }

  /** How long the next one has to wait. Every call is a turn. */
  takeTurn(nowMs: number = performance.now()): number {
    const intervalMs = 1000 / this.#perSecond;
    const earliestMs = nowMs - (this.#burst - 1) * intervalMs;
    this.#dueMs = Math.max(this.#dueMs + intervalMs, earliestMs);
    return Math.max(0, this.#dueMs - nowMs);
  }
}
