import { expect, test } from "vitest";
import { PhaseClock } from "../../src/checkpoints/phase-clock.ts";

test("phases come in order and add up to the total", () => {
  const clock = new PhaseClock();
  clock.lap("freeze");
  clock.lap("save");
  clock.lap("freeze");
  const { phases, totalMs } = clock;
  expect(Object.keys(phases)).toEqual(["freeze", "save"]);
  expect(Object.values(phases).reduce((sum, ms) => sum + ms, 0)).toBeCloseTo(totalMs, 6);
});
