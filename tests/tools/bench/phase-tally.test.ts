import { expect, test } from "vitest";
import { PhaseTally } from "../../bench/persist/phase-tally.ts";

test("the phases of each round add up to the measured time", () => {
  const tally = new PhaseTally();
  tally.add({ warmUp: 1 }, 1, "record");
  tally.add({ freeze: 10, save: 20 }, 35, "record");
  tally.add({ freeze: 11, save: 21 }, 32, "record");
  expect(tally.last(2)).toEqual({ freeze: [10, 11], save: [20, 21], record: [5, 0] });
});

test("a phase that a round did not have counts as 0 ms", () => {
  const tally = new PhaseTally();
  tally.add({ freeze: 10 }, 10, "record");
  tally.add({ verify: 3 }, 3, "record");
  expect(tally.last(2)).toEqual({ freeze: [10, 0], record: [0, 0], verify: [0, 3] });
});
