import type { PhaseTimes } from "@atoll/protocol";

/** How long each step took, and all steps together. */
export interface Timed {
  phases: PhaseTimes;
  totalMs: number;
}

/** Adds up the times of operations that followed each other. */
export function addUp(parts: readonly Timed[]): Timed {
  const phases: PhaseTimes = {};
  for (const [name, ms] of parts.flatMap((part) => Object.entries(part.phases)))
    phases[name] = (phases[name] ?? 0) + ms;
  return { phases, totalMs: parts.reduce((sum, { totalMs }) => sum + totalMs, 0) };
}

/** Times the steps of one operation. Each step ends where the next begins, so they add up to the whole. */
export class PhaseClock {
  #startMs = performance.now();
  #lastMs = this.#startMs;
  #phases: PhaseTimes = {};

  /** Ends a step. Steps of the same name are added up. */
  lap(phase: string): void {
    const nowMs = performance.now();
    this.#phases[phase] = (this.#phases[phase] ?? 0) + (nowMs - this.#lastMs);
    this.#lastMs = nowMs;
  }

  get phases(): PhaseTimes {
    return { ...this.#phases };
  }

  /** The time up to the end of the last step. */
  get totalMs(): number {
    return this.#lastMs - this.#startMs;
  }
}
