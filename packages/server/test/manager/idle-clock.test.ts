import { SandboxTimeouts } from "@atoll/protocol";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { IdleClock } from "../../src/manager/idle-clock.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function makeClock({ runTimeMs, ...timeouts }: { idleMs?: number; lifetimeMs?: number; runTimeMs?: number }) {
  const state = {
    timeouts: SandboxTimeouts.parse(timeouts),
    hasWork: false,
    findsWork: async () => false,
    ended: [] as string[],
  };
  const clock = new IdleClock({
    startedAtMs: Date.now(),
    timeouts: () => state.timeouts,
    runTimeMs: () => runTimeMs,
    hasWork: () => state.hasWork,
    findsWork: () => state.findsWork(),
    onTimeout: (which) => state.ended.push(which),
  });
  return { clock, state };
}

test("a sandbox without requests ends after its idle time", async () => {
  const { state } = makeClock({ idleMs: 10_000 });
  await vi.advanceTimersByTimeAsync(9_999);
  expect(state.ended).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(state.ended).toEqual(["idle"]);
});

test("a sandbox that works ends when its run time is over, before its lifetime", async () => {
  const { clock, state } = makeClock({ lifetimeMs: 60_000, runTimeMs: 10_000 });
  state.hasWork = true;
  clock.retain();
  expect(clock.endsAtMs).toBe(Date.now() + 10_000);
  await vi.advanceTimersByTimeAsync(9_999);
  expect(state.ended).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(state.ended).toEqual(["run_time"]);
});

test("every request starts the idle time again", async () => {
  const { clock, state } = makeClock({ idleMs: 10_000 });
  for (let round = 0; round < 10; round += 1) {
    await vi.advanceTimersByTimeAsync(9_000);
    clock.touch();
  }
  expect(state.ended).toEqual([]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(state.ended).toEqual(["idle"]);
});

test("a sandbox is not idle while a command runs or a request retains it, however long", async () => {
  const { clock, state } = makeClock({ idleMs: 10_000 });
  state.hasWork = true;
  await vi.advanceTimersByTimeAsync(100_000);
  state.hasWork = false;
  clock.touch();
  const leave = clock.retain();
  await vi.advanceTimersByTimeAsync(100_000);
  expect(state.ended).toEqual([]);
  expect(clock.endsAtMs).toBeUndefined();
  leave();
  leave();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(state.ended).toEqual(["idle"]);
});

test("other processes are asked for when the idle time is over, and again after the same time", async () => {
  const { state } = makeClock({ idleMs: 10_000, lifetimeMs: 100_000 });
  let asked = 0;
  state.findsWork = async () => (asked += 1) < 3;
  await vi.advanceTimersByTimeAsync(29_999);
  expect([asked, state.ended]).toEqual([2, []]);
  await vi.advanceTimersByTimeAsync(1);
  expect([asked, state.ended]).toEqual([3, ["idle"]]);
});

test("a request during that question keeps the sandbox, and the timer is set once", async () => {
  const { clock, state } = makeClock({ idleMs: 10_000 });
  let answer: (isBusy: boolean) => void = () => undefined;
  state.findsWork = () =>
    new Promise((resolve) => {
      answer = resolve;
    });
  await vi.advanceTimersByTimeAsync(10_000);
  clock.touch();
  expect(vi.getTimerCount()).toBe(1);
  answer(false);
  await vi.advanceTimersByTimeAsync(9_999);
  expect([state.ended, vi.getTimerCount()]).toEqual([[], 1]);
  await vi.advanceTimersByTimeAsync(1);
  clock.stop();
  answer(false);
  await vi.advanceTimersByTimeAsync(100_000);
  expect([state.ended, vi.getTimerCount()]).toEqual([[], 0]);
});

test("the lifetime ends the sandbox whatever it does", async () => {
  const { state } = makeClock({ idleMs: 10_000, lifetimeMs: 50_000 });
  state.hasWork = true;
  await vi.advanceTimersByTimeAsync(50_000);
  expect(state.ended).toEqual(["lifetime"]);
});

test("changed timeouts apply at once", async () => {
  const { clock, state } = makeClock({ idleMs: 1_000_000 });
  state.timeouts = SandboxTimeouts.parse({ idleMs: 1_000 });
  clock.reset();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(state.ended).toEqual(["idle"]);
});

test("a timeout can be longer than one timer", async () => {
  const days = 24 * 3_600_000;
  const { state } = makeClock({ lifetimeMs: 60 * days });
  await vi.advanceTimersByTimeAsync(59 * days);
  expect(state.ended).toEqual([]);
  await vi.advanceTimersByTimeAsync(days);
  expect(state.ended).toEqual(["lifetime"]);
});
