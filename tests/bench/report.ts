import type { Check } from "./benchmark.ts";
import type { Load } from "./load.ts";
import type { Machine } from "./machine.ts";
import { best, type Direction, type Summary } from "./statistics.ts";

export interface Result {
  name: string;
  unit: string;
  better: Direction;
  /** Null if it could not be measured; `error` gives the reason. */
  ours: Summary | null;
  rival: Summary | null;
  ratio: number | null;
  bar: string;
  ok: boolean;
  n: number;
  /** The parts of our times; null if the benchmark does not measure parts. */
  phases: Record<string, Summary> | null;
  checks: Check[];
  notes: string[];
  error: string | null;
  load: Load;
}

export interface Report {
  machine: Machine;
  commit: string;
  startedAt: string;
  isQuick: boolean;
  results: Result[];
}

const headings = [
  "name",
  "n",
  "ours p50",
  "p95",
  "best",
  "rival p50",
  "p95",
  "best",
  "unit",
  "ratio",
  "bar",
  "",
  "busy",
];
/** The columns that contain text. The others contain numbers, which are aligned to the right. */
const textColumns = new Set([0, 8, 10, 11]);

export function formatReport({ machine, commit, startedAt, isQuick, results }: Report): string {
  const { cpu, cores, memoryMib, kernel, arch, node, runsc } = machine;
  return [
    `commit ${commit}, ${startedAt}${isQuick ? ", quick: an estimate, not a result" : ""}`,
    `${cpu}, ${cores} cores, ${memoryMib} MiB, Linux ${kernel} ${arch}, Node ${node}, runsc ${runsc}`,
    "",
    ...layOut([headings, ...results.map(toRow)]),
    "",
    ...results.flatMap(formatRemarks),
    formatVerdict(results),
  ].join("\n");
}

function toRow(result: Result): string[] {
  const { ours, rival, better, ratio } = result;
  const numbers = (summary: Summary | null): string[] =>
    summary === null
      ? ["-", "-", "-"]
      : [summary.p50, summary.p95, best(summary, better)].map((value) => formatNumber(value));
  return [
    result.name,
    String(result.n),
    ...numbers(ours),
    ...numbers(rival),
    result.unit,
    ratio === null ? "-" : ratio.toFixed(2),
    result.bar,
    result.ok ? "ok" : "MISSED",
    `${Math.round(result.load.busyShare * 100)} %`,
  ];
}

function formatRemarks({ name, checks, notes, phases, error, load }: Result): string[] {
  return [
    ...(error === null ? [] : [`${name}: ERROR ${error}`]),
    ...checks.map(({ text, isMet }) => `${name}: ${isMet ? "ok" : "MISSED"}: ${text}`),
    ...notes.map((note) => `${name}: ${note}`),
    ...(phases === null ? [] : [`${name}: p50 of its phases: ${formatPhases(phases)}`]),
    ...(load.isQuiet
      ? []
      : [`${name}: other programs kept the machine busy (load ${load.average[0]?.toFixed(2)}): measure again`]),
  ];
}

function formatPhases(phases: Record<string, Summary>): string {
  return Object.entries(phases)
    .map(([phase, { p50 }]) => `${phase} ${formatNumber(p50)}`)
    .join(", ");
}

function formatVerdict(results: readonly Result[]): string {
  const missed = results.filter(({ ok }) => !ok).map(({ name }) => name);
  return missed.length === 0
    ? `All ${results.length} bars are met.`
    : `Missed: ${missed.join(", ")} (${missed.length} of ${results.length})`;
}

/** Formats a number with three significant digits; more would be noise. */
export function formatNumber(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function layOut(rows: readonly string[][]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return textColumns.has(column) ? cell.padEnd(width) : cell.padStart(width);
      })
      .join("  ")
      .trimEnd(),
  );
}
