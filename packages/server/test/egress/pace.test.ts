import { expect, test } from "vitest";
import { Pace } from "../../src/egress/pace.ts";

test("a burst does not wait, what follows keeps the pace, and a pause makes room again", () => {
  const pace = new Pace({ perSecond: 10, burst: 3 });
  const turns = [0, 0, 0, 0, 0].map((atMs) => pace.takeTurn(10_000 + atMs));
  expect(turns).toEqual([0, 0, 0, 100, 200]);
  expect(pace.takeTurn(10_300)).toBe(0);
  expect(pace.takeTurn(10_300)).toBe(100);
  expect([1, 2, 3, 4].map(() => pace.takeTurn(60_000))).toEqual([0, 0, 0, 100]);
});
