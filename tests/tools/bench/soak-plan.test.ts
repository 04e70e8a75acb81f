import { expect, test } from "vitest";
import { actions, planCycle } from "../../bench/persist/soak/plan.ts";

test("the same seed plans the same cycle, and another seed a different one", () => {
  expect(planCycle(17)).toEqual(planCycle(17));
  expect(planCycle(17)).not.toEqual(planCycle(18));
});

test("three hundred cycles contain every action on both servers", () => {
  const plans = Array.from({ length: 300 }, (_, index) => planCycle(index));
  expect(new Set(plans.map(({ action, at }) => `${action} ${at}`)).size).toBe(2 * actions.length);
});
