import type { Summary } from "./statistics.ts";

/**
 * The bar that a benchmark has to reach: a limit for our p50, for our p50 divided by the rival's, or its own checks.
 */
export type Bar = Limit | { of: "checks"; text: string };

interface Limit {
  of: "ratio" | "ours";
  is: "at most" | "at least";
  value: number;
}

export interface Verdict {
  /** Null if the benchmark has no rival. */
  ratio: number | null;
  isMet: boolean;
}

/** Judges a bar. The checks of a benchmark are judged separately. */
export function judge(bar: Bar, ours: Summary, rival: Summary | null): Verdict {
  const ratio = rival === null ? null : ours.p50 / rival.p50;
  if (bar.of === "checks") return { ratio, isMet: true };
  const reached = bar.of === "ratio" ? ratio : ours.p50;
  if (reached === null) throw new Error("Cannot judge a ratio without a rival");
  return { ratio, isMet: bar.is === "at most" ? reached <= bar.value : reached >= bar.value };
}

export function describeBar(bar: Bar, unit: string): string {
  if (bar.of === "checks") return bar.text;
  const { of, is, value } = bar;
  const sign = is === "at most" ? "≤" : "≥";
  return of === "ratio" ? `ratio ${sign} ${value}` : `ours ${sign} ${value} ${unit}`;
}
