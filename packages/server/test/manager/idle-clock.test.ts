import { SandboxTimeouts } from "@atoll/protocol";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { IdleClock } from "../../src/manager/idle-clock.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function makeClock(timeouts: { idleMs?: number; lifetimeMs?: number }) {
  const state = { timeouts: SandboxTimeouts.parse(timeouts), hasWork: false, ended: [] as string[] };
  const clock = new IdleClock({
    startedAtMs: Date.now(),
    timeouts: () => state.timeouts,
    hasWork: () => state.hasWork,
    onTimeout: (which) => state.ended.push(which),
  });
  return { clock, state };
}

test("a sandbox of which nothing is asked ends after its idle time", () => {
  const { state } = makeClock({ idleMs: 10_000 });
  vi.advanceTimersByTime(9_999);
  expect(state.ended).toEqual([]);
  vi.advanceTimersByTime(1);
  expect(state.ended).toEqual(["idle"]);
});

test("every request lets the time begin anew", () => {
  const { clock, state } = makeClock({ idleMs: 10_000 });
  for (let round = 0; round < 10; round += 1) {
    vi.advanceTimersByTime(9_000);
    clock.touch();
  }
  expect(state.ended).toEqual([]);
  vi.advanceTimersByTime(10_000);
  expect(state.ended).toEqual(["idle"]);
});

test("it is not idle while something runs or is open, however long", () => {
  const { clock, state } = makeClock({ idleMs: 10_000 });
  state.hasWork = true;
  vi.advanceTimersByTime(100_000);
  state.hasWork = false;
  clock.touch();
  const leave = clock.open();
  vi.advanceTimersByTime(100_000);
  expect(state.ended).toEqual([]);
  expect(clock.endsAtMs).toBeUndefined();
  leave();
  leave();
  vi.advanceTimersByTime(10_000);
  expect(state.ended).toEqual(["idle"]);
});

test("its lifetime ends it whatever it does", () => {
  const { state } = makeClock({ idleMs: 10_000, lifetimeMs: 50_000 });
  state.hasWork = true;
  vi.advanceTimersByTime(50_000);
  expect(state.ended).toEqual(["lifetime"]);
});

test("a change of the times holds at once", () => {
  const { clock, state } = makeClock({ idleMs: 1_000_000 });
  state.timeouts = SandboxTimeouts.parse({ idleMs: 1_000 });
  clock.reset();
  vi.advanceTimersByTime(1_000);
  expect(state.ended).toEqual(["idle"]);
});

test("it waits longer than one timer can", () => {
  const days = 24 * 3_600_000;
  const { state } = makeClock({ lifetimeMs: 60 * days });
  vi.advanceTimersByTime(59 * days);
  expect(state.ended).toEqual([]);
  vi.advanceTimersByTime(days);
  expect(state.ended).toEqual(["lifetime"]);
});
