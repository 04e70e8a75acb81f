import type { SandboxError, SandboxId } from "@atoll/protocol";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { GuestWatch } from "../../src/guest/guest-watch.ts";

const sandboxId = "watched" as SandboxId;
const timeoutMs = 3_000;
let pings: (() => void)[];
let changes: boolean[];
let isStill: boolean;
let watch: GuestWatch;

beforeEach(() => {
  vi.useFakeTimers();
  pings = [];
  changes = [];
  isStill = false;
  const mayBeStill = (): boolean => isStill;
  const onChange = (isSilent: boolean): void => void changes.push(isSilent);
  watch = new GuestWatch(
    { sandboxId, timeoutMs, mayBeStill, onChange },
    () => new Promise((resolve) => pings.push(resolve)),
  );
});
afterEach(() => {
  vi.useRealTimers();
});

function expectation(options: { afterMs?: number; isPrompt?: boolean } = {}): {
  told: SandboxError[];
  done: () => void;
} {
  const told: SandboxError[] = [];
  const done = watch.expect({ ...options, onSilent: (error) => void told.push(error) });
  return { told, done };
}

test("a guest of which nobody expects anything is asked nothing", async () => {
  expectation().done();
  await vi.advanceTimersByTimeAsync(100 * timeoutMs);
  expect({ pings: pings.length, changes }).toEqual({ pings: 0, changes: [] });
});

test("one that leaves a ping unanswered is silent, and whoever waits is told in time", async () => {
  const { told } = expectation();
  await vi.advanceTimersByTimeAsync(timeoutMs - 1);
  expect({ pings: pings.length, told, changes }).toEqual({ pings: 1, told: [], changes: [] });
  await vi.advanceTimersByTimeAsync(1);
  expect(told[0]).toMatchObject({ code: "guest_silent", details: { sandboxId } });
  expect(changes).toEqual([true]);
  expect(() => watch.assertAnswers()).toThrow(/has not answered for 3000 ms/);
});

test("one that answers the ping at last is there again", async () => {
  expectation();
  await vi.advanceTimersByTimeAsync(timeoutMs);
  pings[0]?.();
  await vi.advanceTimersByTimeAsync(0);
  expect(changes).toEqual([true, false]);
  expect(watch.silence).toBeUndefined();
});

test("one that answers pings and not what it was asked is not silent, and whoever asked is told all the same", async () => {
  const prompt = expectation({ isPrompt: true });
  const slow = expectation();
  for (let passed = 0; passed < 2 * timeoutMs; passed += 100) {
    await vi.advanceTimersByTimeAsync(100);
    for (const answer of pings.splice(0)) answer();
  }
  expect(prompt.told[0]).toMatchObject({ code: "guest_silent" });
  expect({ slow: slow.told, changes }).toEqual({ slow: [], changes: [] });
});

test("what is due later is told later, and again while it waits", async () => {
  const later = expectation({ afterMs: 60_000 });
  expectation();
  await vi.advanceTimersByTimeAsync(59_000);
  expect(later.told).toEqual([]);
  await vi.advanceTimersByTimeAsync(2 * timeoutMs);
  expect(later.told.length).toBeGreaterThan(1);
});

test("one that is meant to stand still is not silent", async () => {
  isStill = true;
  const { told } = expectation({ isPrompt: true });
  await vi.advanceTimersByTimeAsync(10 * timeoutMs);
  expect({ told, changes, pings: pings.length }).toEqual({ told: [], changes: [], pings: 0 });
  isStill = false;
  await vi.advanceTimersByTimeAsync(2 * timeoutMs);
  expect(told[0]).toMatchObject({ code: "guest_silent" });
});
