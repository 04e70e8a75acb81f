/** Says whether a small value or a large one is good. */
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
 * Returns a percentile by nearest rank, which is always a measured value. `fraction` is above 0 and at most 1.
 */
export function percentile(samples: readonly number[], fraction: number): number {
  const sorted = samples.toSorted((a, b) => a - b);
  const value = sorted[Math.max(0, Math.ceil(fraction * sorted.length) - 1)];
  if (value === undefined) throw new Error("Cannot take a percentile of no samples");
  return value;
}

export function summarize(samples: readonly number[], better: Direction): Summary {
  // If larger values are better, ranks are counted from the other end, so that p95 stays the slow tail.
  const tail = better === "lower" ? percentile(samples, 0.95) : -percentile(samples.map(negate), 0.95);
  return {
    p50: percentile(samples, 0.5),
    p95: tail,
    min: Math.min(...samples),
    max: Math.max(...samples),
    mean: samples.reduce((sum, sample) => sum + sample, 0) / samples.length,
  };
}

/** Returns the best sample, which the rest of the machine disturbed least. */
export function best(summary: Summary, better: Direction): number {
  return better === "lower" ? summary.min : summary.max;
}

function negate(value: number): number {
  return -value;
}
