import { expect, test } from "vitest";
import { cheapestMerge } from "../../src/checkpoints/bound-stack.ts";

const stack = (...sizes: number[]): { sizeBytes: number }[] => sizes.map((sizeBytes) => ({ sizeBytes }));

test("a stack of seven has room for one more", () => {
  expect(cheapestMerge(stack(1, 1, 1, 1, 1, 1, 1))).toBeUndefined();
});

test("in a stack of eight the two smallest neighbours are merged", () => {
  expect(cheapestMerge(stack(5, 9, 2, 3, 7, 8, 9, 1))).toBe(2);
});

test("a large layer at the bottom stays where it is", () => {
  expect(cheapestMerge(stack(4, 4, 4, 4, 4, 4, 4, 1_000))).toBe(0);
});

test("the lowest two are merged when they are the cheapest", () => {
  expect(cheapestMerge(stack(9, 9, 9, 9, 9, 9, 1, 1))).toBe(6);
});
