import type { Bar } from "./bar.ts";
import type { Lab } from "./lab.ts";
import type { Direction } from "./statistics.ts";
import type { Workbench } from "./workbench.ts";

/** A condition besides the bar that has to hold. */
export interface Check {
  /** The condition and the value found, for the table. */
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
  /** Remarks that do not affect the verdict. */
  notes?: string[];
  /** The parts of our times, one sample of each part per round. */
  phases?: Phases;
}

interface Description {
  /** The name has the form `area.what`; `--only` selects by prefix. */
  name: string;
  title: string;
  unit: "ms" | "MiB" | "MiB/s" | "% of a core";
  better: Direction;
  bar: Bar;
  rounds: { full: number; quick: number };
}

/** A benchmark that compares ours with a rival. */
export interface Comparison extends Description {
  run(lab: Lab, rounds: number): Promise<Samples & Findings>;
}

/** A benchmark without a rival, whose limits are absolute. */
export interface Trial extends Description {
  attempt(bench: Workbench, rounds: number): Promise<Pick<Samples, "ours"> & Findings>;
}

export type Benchmark = Comparison | Trial;

/**
 * Measures both sides in turns, ours first, so that other load on the machine affects both alike. One turn of each
 * comes before and is not counted: it fills the page cache and everything that is made lazily, for both sides. Every
 * turn waits until the machine has been quiet for a moment, within the patience of `QuietWatch`: after an idle moment
 * everything takes longer, and a turn right after the other side's would have an advantage.
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

/** The rounds are divided among this number of sandboxes on each side. */
const series = 5;

/**
 * Measures several short series instead of a long one, each with new sandboxes. In the first moments of a sandbox's
 * life systrap chooses how its threads wait for each other, and keeps to it: some sandboxes are a quarter slower than
 * others for as long as they live. With a single pair the ratio would be a matter of luck.
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
