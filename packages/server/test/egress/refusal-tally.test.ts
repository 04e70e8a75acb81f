import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { RefusalTally, type LoggedRefusal } from "../../src/egress/refusal-tally.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function makeTally() {
  const logged: LoggedRefusal[] = [];
  const tally = new RefusalTally((refusal) => logged.push(refusal));
  const refuse = (host: string, times: number, port = 443): void => {
    for (let index = 0; index < times; index += 1) {
      tally.add({ host, port, protocol: "http", verdict: "refused", because: "no rule names it" });
    }
  };
  const count = (): number => logged.reduce((sum, { more = 1 }) => sum + more, 0);
  return { tally, logged, refuse, count };
}

test("the first refusals of a place are logged at once, and the rest as a number after a minute", () => {
  const { logged, refuse } = makeTally();
  refuse("a.test", 5);
  refuse("a.test", 1, 80);
  expect(logged.map(({ host, port, more }) => [host, port, more])).toEqual([
    ["a.test", 443, undefined],
    ["a.test", 443, undefined],
    ["a.test", 443, undefined],
    ["a.test", 80, undefined],
  ]);
  vi.advanceTimersByTime(60_000);
  expect(logged.slice(4)).toEqual([
    { host: "a.test", port: 443, verdict: "refused", because: "no rule names it", more: 2 },
  ]);
  // A new minute begins with the next refusal.
  refuse("a.test", 1);
  expect(logged.at(-1)).toMatchObject({ host: "a.test" });
  expect(logged.at(-1)?.more).toBeUndefined();
  expect(vi.getTimerCount()).toBe(1);
});

test("a sandbox that asks for many places is logged in few lines, and none is left out", () => {
  const { tally, logged, refuse, count } = makeTally();
  for (let place = 0; place < 10_000; place += 1) refuse(`${place}.test`, 1);
  refuse("0.test", 10);
  expect(logged.length).toBeLessThanOrEqual(16 * 3);
  tally.flush();
  expect(count()).toBe(10_010);
  expect(logged.length).toBeLessThanOrEqual(16 * 4 + 1);
  expect(logged.at(-1)).toMatchObject({ host: "*", port: 0, more: 9_984 });
  tally.flush();
  expect([count(), vi.getTimerCount()]).toEqual([10_010, 0]);
});
