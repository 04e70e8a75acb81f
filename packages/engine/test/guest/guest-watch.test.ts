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
  errors: SandboxError[];
  done: () => void;
} {
  const errors: SandboxError[] = [];
  const done = watch.expect({ ...options, onSilent: (error) => void errors.push(error) });
  return { errors, done };
}

test("a guest without expectations gets no ping", async () => {
  expectation().done();
  await vi.advanceTimersByTimeAsync(100 * timeoutMs);
  expect({ pings: pings.length, changes }).toEqual({ pings: 0, changes: [] });
});

test("a guest that leaves a ping unanswered is silent, and waiting callers learn it in time", async () => {
  const { errors } = expectation();
  await vi.advanceTimersByTimeAsync(timeoutMs - 1);
  expect({ pings: pings.length, errors, changes }).toEqual({ pings: 1, errors: [], changes: [] });
  await vi.advanceTimersByTimeAsync(1);
  expect(errors[0]).toMatchObject({ code: "guest_silent", details: { sandboxId } });
  expect(changes).toEqual([true]);
  expect(() => watch.assertAnswers()).toThrow(/has not answered for 3000 ms/);
});

test("a guest that answers the ping late is not silent any more", async () => {
  expectation();
  await vi.advanceTimersByTimeAsync(timeoutMs);
  pings[0]?.();
  await vi.advanceTimersByTimeAsync(0);
  expect(changes).toEqual([true, false]);
  expect(watch.silence).toBeUndefined();
});

test("a guest that answers only pings is not silent, but callers of prompt requests learn of it", async () => {
  const prompt = expectation({ isPrompt: true });
  const slow = expectation();
  for (let passed = 0; passed < 2 * timeoutMs; passed += 100) {
    await vi.advanceTimersByTimeAsync(100);
    for (const answer of pings.splice(0)) answer();
  }
  expect(prompt.errors[0]).toMatchObject({ code: "guest_silent" });
  expect({ slow: slow.errors, changes }).toEqual({ slow: [], changes: [] });
});

test("a later expectation is reported later, and again while it waits", async () => {
  const later = expectation({ afterMs: 60_000 });
  expectation();
  await vi.advanceTimersByTimeAsync(59_000);
  expect(later.errors).toEqual([]);
  await vi.advanceTimersByTimeAsync(2 * timeoutMs);
  expect(later.errors.length).toBeGreaterThan(1);
});

test("a guest that is stopped on purpose is not silent", async () => {
  isStill = true;
  const { errors } = expectation({ isPrompt: true });
  await vi.advanceTimersByTimeAsync(10 * timeoutMs);
  expect({ errors, changes, pings: pings.length }).toEqual({ errors: [], changes: [], pings: 0 });
  isStill = false;
  await vi.advanceTimersByTimeAsync(2 * timeoutMs);
  expect(errors[0]).toMatchObject({ code: "guest_silent" });
});
