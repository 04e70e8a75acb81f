import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LeftoverWatch, type Leftover } from "../../src/monitor/leftover-watch.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("what is found twice in a row is reported once, and searches end when nothing is left", async () => {
  let searches = 0;
  let present: Leftover[] = [{ kind: "process", what: "process 7" }];
  const found: string[] = [];
  const watch = new LeftoverWatch({
    checkMs: 1_000,
    find: async () => {
      searches += 1;
      return present;
    },
    onFound: ({ what }) => found.push(what),
    onError: () => undefined,
  });
  await vi.advanceTimersByTimeAsync(10_000);
  expect(searches).toBe(0);
  watch.ended();
  await vi.advanceTimersByTimeAsync(1_000);
  // It was only going away.
  present = [{ kind: "cgroup", what: "cgroup a" }];
  await vi.advanceTimersByTimeAsync(1_000);
  expect([found, watch.count]).toEqual([[], 0]);
  await vi.advanceTimersByTimeAsync(5_000);
  expect([found, watch.count]).toEqual([["cgroup a"], 1]);
  present = [];
  await vi.advanceTimersByTimeAsync(1_000);
  expect(watch.count).toBe(0);
  const before = searches;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(searches).toBe(before);
});

test("a search that fails is reported, and the next end is followed by another one", async () => {
  const errors: unknown[] = [];
  const watch = new LeftoverWatch({
    checkMs: 1_000,
    find: () => Promise.reject(new Error("the disk")),
    onFound: () => undefined,
    onError: (error) => errors.push(error),
  });
  watch.ended();
  await vi.advanceTimersByTimeAsync(5_000);
  watch.ended();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(errors).toHaveLength(2);
});

test("an end during a search is followed by another search", async () => {
  const searches: (() => void)[] = [];
  const watch = new LeftoverWatch({
    checkMs: 1_000,
    find: () => new Promise((resolve) => searches.push(() => resolve([]))),
    onFound: () => undefined,
    onError: () => undefined,
  });
  watch.ended();
  await vi.advanceTimersByTimeAsync(1_000);
  watch.ended();
  searches[0]?.();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(searches).toHaveLength(2);
  searches[1]?.();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(searches).toHaveLength(2);
});
