import type { Summary } from "./statistics.ts";

/** What a benchmark has to reach: of our p50 alone, or of our p50 divided by the rival's. */
export interface Bar {
  of: "ratio" | "ours";
  is: "at most" | "at least";
  value: number;
}

export interface Verdict {
  ratio: number;
  isMet: boolean;
}

export function judge(bar: Bar, ours: Summary, rival: Summary): Verdict {
  const ratio = ours.p50 / rival.p50;
  const reached = bar.of === "ratio" ? ratio : ours.p50;
  return { ratio, isMet: bar.is === "at most" ? reached <= bar.value : reached >= bar.value };
}

export function describeBar({ of, is, value }: Bar, unit: string): string {
  const sign = is === "at most" ? "≤" : "≥";
  return of === "ratio" ? `ratio ${sign} ${value}` : `ours ${sign} ${value} ${unit}`;
}
