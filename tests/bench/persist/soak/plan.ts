import { SeededRandom } from "../../server/durability/seeded-random.ts";

export const actions = [
  "pause",
  "hand over",
  "fork",
  "kill the server",
  "kill the server of a stored sandbox",
  "kill an upload",
  "refuse requests of the store",
  "fill the disk",
] as const;

/** An action on the sandbox between two pieces of work. All of it follows from the seed. */
export interface Cycle {
  seed: number;
  action: (typeof actions)[number];
  /** The index of the server on which the work before the action is done. */
  at: 0 | 1;
  /** The size of the file that the work writes. */
  bytes: number;
  /** The number of requests to the store that fail, for actions with such failures. */
  faults: number;
  isCut: boolean;
}

const KiB = 1024;

export function planCycle(seed: number): Cycle {
  const random = new SeededRandom(seed);
  return {
    seed,
    action: random.oneOf(actions),
    at: random.oneOf([0, 1]),
    bytes: random.oneOf([0, random.between(1, 4 * KiB), random.between(4 * KiB, 512 * KiB)]),
    faults: random.between(1, 12),
    isCut: random.next() < 0.5,
  };
}
