/** Whether a small value or a large one is the good one. */
export type Direction = "lower" | "higher";

export interface Summary {
  p50: number;
  /** The slow tail: 95 of 100 samples were at least as good as this. */
  p95: number;
  min: number;
  max: number;
  mean: number;
}

/**
 * By nearest rank: always a value that was measured, never one between two of them. `fraction` is above 0 and at most
 * 1.
 */
export function percentile(samples: readonly number[], fraction: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  const value = sorted[Math.max(0, Math.ceil(fraction * sorted.length) - 1)];
  if (value === undefined) throw new Error("There is no percentile of no samples");
  return value;
}

export function summarize(samples: readonly number[], better: Direction): Summary {
  // Towards the good end the ranks are counted from the other side, so that p95 stays the slow tail.
  const tail = better === "lower" ? percentile(samples, 0.95) : -percentile(samples.map(negate), 0.95);
  return {
    p50: percentile(samples, 0.5),
    p95: tail,
    min: Math.min(...samples),
    max: Math.max(...samples),
    mean: samples.reduce((sum, sample) => sum + sample, 0) / samples.length,
  };
}

/** The sample that the rest of the machine disturbed least. */
export function best(summary: Summary, better: Direction): number {
  return better === "lower" ? summary.min : summary.max;
}

function negate(value: number): number {
  return -value;
}
