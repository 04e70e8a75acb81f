import type { Summary } from "./statistics.ts";

/** What a benchmark has to reach: of our p50 alone, of our p50 divided by the rival's, or what its checks say. */
export type Bar = Limit | { of: "checks"; text: string };

interface Limit {
  of: "ratio" | "ours";
  is: "at most" | "at least";
  value: number;
}

export interface Verdict {
  /** Null where there is no rival. */
  ratio: number | null;
  isMet: boolean;
}

/** The checks are looked at apart from this. */
export function judge(bar: Bar, ours: Summary, rival: Summary | null): Verdict {
  const ratio = rival === null ? null : ours.p50 / rival.p50;
  if (bar.of === "checks") return { ratio, isMet: true };
  const reached = bar.of === "ratio" ? ratio : ours.p50;
  if (reached === null) throw new Error("There is no ratio without a rival");
  return { ratio, isMet: bar.is === "at most" ? reached <= bar.value : reached >= bar.value };
}

export function describeBar(bar: Bar, unit: string): string {
  if (bar.of === "checks") return bar.text;
  const { of, is, value } = bar;
  const sign = is === "at most" ? "≤" : "≥";
  return of === "ratio" ? `ratio ${sign} ${value}` : `ours ${sign} ${value} ${unit}`;
}
