/**
 * Lets a burst through at once, and from then on a fixed number per second. Callers that come too fast wait, in order.
 */
export class Pace {
  #perSecond: number;
  #burst: number;
  /** The time of the last turn that was given out. */
  #dueMs = 0;

  constructor({ perSecond, burst }: { perSecond: number; burst: number }) {
    this.#perSecond = perSecond;
    this.#burst = burst;
  }

  /** Returns how long the caller has to wait. Every call takes a turn. */
  takeTurn(nowMs: number = performance.now()): number {
    const intervalMs = 1000 / this.#perSecond;
    const earliestMs = nowMs - (this.#burst - 1) * intervalMs;
    this.#dueMs = Math.max(this.#dueMs + intervalMs, earliestMs);
    return Math.max(0, this.#dueMs - nowMs);
  }
}
