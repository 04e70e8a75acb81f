import { expect, test } from "vitest";
import { sparkline } from "../../src/output/sparkline.ts";

test("values are bars between nothing and the largest one", () => {
  expect(sparkline([0, 1, 2, 3, 4, 5, 6, 7], { width: 20, least: 1 })).toBe("▁▂▃▄▅▆▇█");
});

test("only the newest values are drawn", () => {
  expect(sparkline([9, 9, 0, 7], { width: 2, least: 1 })).toBe("▁█");
  expect(sparkline([], { width: 2, least: 1 })).toBe("");
});

test("noise is drawn as little", () => {
  expect(sparkline([0.001, 0.002, 0.001], { width: 10, least: 0.1 })).toBe("▁▁▁");
});
