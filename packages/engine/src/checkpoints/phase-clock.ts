import type { PhaseTimes } from "@atoll/protocol";

/** Times the steps of one operation. Each ends where the next begins, so they add up to the whole. */
export class PhaseClock {
  #startMs = performance.now();
  #lastMs = this.#startMs;
  #phases: PhaseTimes = {};

  /** The step that ends now. Steps of the same name are counted together. */
  lap(phase: string): void {
    const nowMs = performance.now();
    this.#phases[phase] = (this.#phases[phase] ?? 0) + (nowMs - this.#lastMs);
    this.#lastMs = nowMs;
  }

  get phases(): PhaseTimes {
    return { ...this.#phases };
  }

  /** Up to the end of the last step. */
  get totalMs(): number {
    return this.#lastMs - this.#startMs;
  }
}
