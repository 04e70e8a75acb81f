import { UsageError } from "./usage-error.ts";

const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Parses `500ms`, `30s`, `1m30s` or `2h`; a bare number is seconds. */
export function parseDuration(text: string): number {
  if (/^\d+(\.\d+)?$/.test(text)) return positive(Math.round(Number(text) * 1_000), text);
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) throw refusal(text);
  let total = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    total += Number(amount) * unitMs[unit as keyof typeof unitMs];
  }
  return positive(Math.round(total), text);
}

function positive(ms: number, text: string): number {
  if (ms < 1) throw refusal(text);
  return ms;
}

function refusal(text: string): UsageError {
  return new UsageError(`Cannot read ${JSON.stringify(text)} as a duration`, "Write it as 500ms, 30s, 5m, 2h or 1d.");
}
