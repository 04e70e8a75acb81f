import type { Bar } from "./bar.ts";
import type { Lab } from "./lab.ts";
import type { Direction } from "./statistics.ts";
import type { Workbench } from "./workbench.ts";

/** Something besides the bar that has to hold. */
export interface Check {
  /** What was looked at and what was found, for the table. */
  text: string;
  isMet: boolean;
}

export interface Samples {
  ours: number[];
  rival: number[];
}

export type Phases = Record<string, number[]>;

interface Findings {
  checks: Check[];
  /** Worth knowing, without a say in the verdict. */
  notes?: string[];
  /** What the times of ours are made of, one sample of each per round. */
  phases?: Phases;
}

interface Description {
  /** `area.what`; `--only` selects by prefix. */
  name: string;
  title: string;
  unit: "ms" | "MiB" | "MiB/s" | "% of a core";
  better: Direction;
  bar: Bar;
  rounds: { full: number; quick: number };
}

/** Ours against a rival. */
export interface Comparison extends Description {
  run(lab: Lab, rounds: number): Promise<Samples & Findings>;
}

/** Ours alone: what has to hold is absolute. */
export interface Trial extends Description {
  attempt(bench: Workbench, rounds: number): Promise<Pick<Samples, "ours"> & Findings>;
}

export type Benchmark = Comparison | Trial;

/**
 * Takes turns, ours first, so that whatever else the machine does meets both sides alike. One turn of each goes before
 * and is not counted: page cache and lazily made things are warm for both. Every turn begins on a machine that has been
 * quiet for a moment, if others ever are: after an idle moment everything takes longer, and a turn right after the
 * other side's would be spared that.
 */
export async function takeTurns(
  lab: Lab,
  rounds: number,
  sides: { ours: () => Promise<number>; rival: () => Promise<number> },
): Promise<Samples> {
  const samples: Samples = { ours: [], rival: [] };
  await sides.ours();
  await sides.rival();
  for (let round = 1; round <= rounds; round++) {
    lab.progress.report(`round ${round} of ${rounds}`);
    for (const side of ["ours", "rival"] as const) {
      lab.signal.throwIfAborted();
      await lab.quiet.wait();
      samples[side].push(await sides[side]());
    }
  }
  return samples;
}

/** So many sandboxes of each side share the rounds. */
const series = 5;

/**
 * Several short series instead of a long one, each with sandboxes of its own. systrap settles in the first moments of a
 * sandbox's life on how its threads wait for each other, and stays with it: some sandboxes are a quarter slower than
 * others for as long as they live, and with one pair alone the ratio would be a matter of luck.
 */
export async function takeSeries(rounds: number, measure: (rounds: number) => Promise<Samples>): Promise<Samples> {
  const all: Samples = { ours: [], rival: [] };
  for (let left = rounds; left > 0; left -= Math.ceil(rounds / series)) {
    const { ours, rival } = await measure(Math.min(left, Math.ceil(rounds / series)));
    all.ours.push(...ours);
    all.rival.push(...rival);
  }
  return all;
}
