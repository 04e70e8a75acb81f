import { Chance } from "../../server/durability/chance.ts";

export const actions = [
  "pause",
  "hand over",
  "fork",
  "kill the server",
  "kill the server of a stored one",
  "kill an upload",
  "refuse requests of the store",
  "fill the disk",
] as const;

/** What happens to the sandbox between two pieces of work. All of it follows from its seed. */
export interface Cycle {
  seed: number;
  action: (typeof actions)[number];
  /** Which of the two servers is asked for the work before. */
  at: 0 | 1;
  /** Of the file that the work writes. */
  bytes: number;
  /** How many requests to the store go wrong, where some do. */
  faults: number;
  isCut: boolean;
}

const KiB = 1024;

export function planCycle(seed: number): Cycle {
  const chance = new Chance(seed);
  return {
    seed,
    action: chance.oneOf(actions),
    at: chance.oneOf([0, 1]),
    bytes: chance.oneOf([0, chance.between(1, 4 * KiB), chance.between(4 * KiB, 512 * KiB)]),
    faults: chance.between(1, 12),
    isCut: chance.next() < 0.5,
  };
}
