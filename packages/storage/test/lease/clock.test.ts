import { describe, expect, test } from "vitest";
import { systemClock } from "../../src/index.ts";
import { awakeTime, pause } from "../../src/lease/clock.ts";
import { Timeline, skewedClock } from "../support/lease/timeline.ts";

describe("a clock that includes the time asleep", () => {
  const sources = { monotonic: 5000, uptime: 90_000 };
  const now = awakeTime({ monotonicMs: () => sources.monotonic, uptimeMs: () => sources.uptime });

  test("follows the monotonic clock while the machine is awake, however coarse the uptime is", () => {
    const start = now();
    sources.monotonic += 1234.5;
    sources.uptime += 1230;
    expect(now() - start).toBe(1234.5);
  });

  test("includes each sleep after the machine wakes up", () => {
    for (const sleepMs of [3_600_000, 500]) {
      const before = now();
      sources.uptime += sleepMs + 10;
      sources.monotonic += 10;
      expect(now() - before).toBeGreaterThanOrEqual(sleepMs);
      expect(now() - before).toBeLessThan(sleepMs + 30);
    }
  });

  test("never goes back", () => {
    const before = now();
    sources.uptime -= 50;
    expect(now()).toBeGreaterThanOrEqual(before);
  });
});

test("the system's clock agrees with itself about how long a timer took", async () => {
  const start = systemClock.now();
  await new Promise<void>((resolve) => systemClock.after(20, resolve));
  expect(systemClock.now() - start).toBeGreaterThanOrEqual(19);
});

test("an alarm of a simulated clock never comes early by that clock, whatever the rounding", async () => {
  for (let round = 0; round < 2_000; round += 1) {
    const timeline = new Timeline();
    timeline.nowMs = Math.random() * 12_000;
    const rate = [0.1, 0.99, 1, 1.01, 10][round % 5] ?? 1;
    const clock = skewedClock(timeline, { offsetMs: round % 2 === 0 ? 0 : (Math.random() - 0.5) * 2e9, rate });
    const dueMs = clock.now() + Math.random() * 10 ** -(round % 14);
    let cameAtMs = -Infinity;
    clock.after(dueMs - clock.now(), () => (cameAtMs = clock.now()));
    await timeline.advance(100);
    expect(cameAtMs).toBeGreaterThanOrEqual(dueMs);
  }
});

describe("a pause", () => {
  test("ends when its time has passed", async () => {
    const timeline = new Timeline();
    let isOver = false;
    void pause(skewedClock(timeline), 100).then(() => (isOver = true));
    await timeline.advance(99);
    expect(isOver).toBe(false);
    await timeline.advance(1);
    expect(isOver).toBe(true);
  });

  test("ends with the first signal, also with one that is aborted before it begins", async () => {
    const clock = skewedClock(new Timeline());
    const controller = new AbortController();
    const pausing = pause(clock, 1e9, undefined, controller.signal);
    controller.abort();
    await pausing;
    await pause(clock, 1e9, AbortSignal.abort());
  });
});
