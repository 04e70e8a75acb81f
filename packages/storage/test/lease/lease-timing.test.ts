import { describe, expect, test } from "vitest";
import { completeTiming, silenceMs } from "../../src/lease/lease-timing.ts";

describe("the times of a lease", () => {
  test.for([100, 1000, 15_000, 600_000])("%i ms have passed by every clock when an observer has waited", (ttlMs) => {
    const [slowest, fastest] = [0.99, 1.01];
    expect(silenceMs(ttlMs) / fastest).toBeGreaterThan(ttlMs / slowest);
  });

  test("every missing time is derived from the time to live and is valid, for every time to live", () => {
    for (const ttlMs of [300, 1000, 15_000, 600_000]) {
      const { stopMs, renewMs, callMs } = completeTiming({ ttlMs });
      expect(renewMs + 2 * callMs).toBeLessThanOrEqual(ttlMs - stopMs);
    }
  });

  test.for([
    { ttlMs: 0 },
    { ttlMs: 0.5 },
    { ttlMs: Number.NaN },
    { ttlMs: 600_001 },
    { waiterTtlMs: 600_001 },
    { waiterTtlMs: -1 },
    { pollMs: 0 },
    { watchMs: Infinity },
    { ttlMs: 1000, callMs: 500 },
    { ttlMs: 1000, stopMs: 900 },
  ])("%o is refused", (timing) => {
    expect(() => completeTiming(timing)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });
});
