import type { Clock } from "../../../src/index.ts";

interface Moment {
  atMs: number;
  order: number;
  action: () => void;
}

/** Lets everything happen that happens without time passing. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** True time, which passes only when a test says so, from one moment at which something happens to the next. */
export class Timeline {
  nowMs = 0;
  #moments: Moment[] = [];
  #order = 0;
  /** Called after everything that happened at a moment has settled. */
  onMoment: () => void = () => undefined;

  at(atMs: number, action: () => void): () => void {
    const moment = { atMs: Math.max(atMs, this.nowMs), order: (this.#order += 1), action };
    const isLater = (other: Moment): boolean => other.atMs > moment.atMs;
    const index = this.#moments.findIndex(isLater);
    this.#moments.splice(index === -1 ? this.#moments.length : index, 0, moment);
    return () => {
      this.#moments = this.#moments.filter((other) => other !== moment);
    };
  }

  async advance(byMs: number): Promise<void> {
    const endMs = this.nowMs + byMs;
    await settle();
    for (let next = this.#moments[0]; next !== undefined && next.atMs <= endMs; next = this.#moments[0]) {
      this.#moments.shift();
      this.nowMs = next.atMs;
      next.action();
      await settle();
      this.onMoment();
    }
    this.nowMs = endMs;
  }

  /** Advances in small steps until the condition holds; returns false when it does not hold within the time. */
  async until(condition: () => boolean, limitMs: number): Promise<boolean> {
    const endMs = this.nowMs + limitMs;
    await settle();
    while (!condition()) {
      if (this.nowMs >= endMs) return false;
      await this.advance(10);
    }
    return true;
  }
}

export interface Skew {
  offsetMs: number;
  /** How many of its milliseconds pass in a true one. */
  rate: number;
}

/** A clock that differs from true time, and whose alarms reach their owner through `deliver`. */
export function skewedClock(
  timeline: Timeline,
  { offsetMs, rate }: Skew = { offsetMs: 0, rate: 1 },
  deliver: (action: () => void) => void = (action) => action(),
): Clock {
  const shownAt = (trueMs: number): number => offsetMs + trueMs * rate;
  return {
    now: () => shownAt(timeline.nowMs),
    after: (delayMs, callback) => {
      const waitMs = Math.max(0, delayMs);
      const dueMs = shownAt(timeline.nowMs) + waitMs;
      let atMs = timeline.nowMs + waitMs / rate;
      // Times are rounded: a waiter woken slightly early would wait for the rest of its time for ever.
      for (let stepMs = 1e-9; shownAt(atMs) < dueMs; stepMs *= 2) atMs += stepMs;
      return timeline.at(atMs, () => deliver(callback));
    },
  };
}
