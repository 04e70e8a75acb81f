import { randomInt } from "node:crypto";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import { lawlessPlan, sharpPlan, troubleMs, wildPlan } from "../support/lease/plans.ts";
import { Simulation, type SimulationPlan } from "../support/lease/simulation.ts";

/**
 * The test's name contains the seed. If it is given again, the same plans are tried, and a failing plan is made as
 * small as possible.
 */
const givenSeed = process.env["ATOLL_TEST_SEED"];
const seed = Number(givenSeed ?? randomInt(2 ** 31));
const runs = Number(process.env["ATOLL_TEST_RUNS"] ?? thorough(12, 300));

/** The sum of all durations and pauses, by clocks that run at a tenth of the speed. */
const longestWaitMs = 40_000;

const seen = { takeovers: 0, handovers: 0, writes: 0 };

async function play(plan: SimulationPlan): Promise<void> {
  const world = new Simulation(plan);
  await world.timeline.advance(troubleMs);
  world.calm();
  const before = world.acquisitions;
  const hasOwner = (): boolean => world.acquisitions > before || world.believers.length > 0;
  const goesOn = await world.timeline.until(hasOwner, longestWaitMs);
  if (!goesOn) throw new Error("no server gets the lease although nothing goes wrong any more");
  await world.timeline.advance(1000);
  seen.takeovers += world.history.takeovers;
  seen.handovers += world.history.handovers;
  seen.writes += world.lives.reduce((total, life) => total + life.writes, 0);
}

const plans = {
  "whatever happens to calls and servers, there is one owner and one waiter": wildPlan,
  "an owner that is cut off stops before the quickest waiter takes over": sharpPlan,
  "even when clocks are arbitrarily wrong, no write comes after one of a later epoch": lawlessPlan,
};

for (const [name, plan] of Object.entries(plans)) {
  test(`${name} (seed ${seed})`, async () => {
    Object.assign(seen, { takeovers: 0, handovers: 0, writes: 0 });
    const property = fc.asyncProperty(plan, play);
    await fc.assert(property, { seed, numRuns: runs, endOnFailure: givenSeed === undefined });
    // Plans under which nothing happens prove nothing.
    expect(Object.values(seen).every((count) => count > 0)).toBe(true);
  });
}
