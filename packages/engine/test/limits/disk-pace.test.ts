import { describe, expect, test } from "vitest";
import { nextDiskDelay } from "../../src/limits/disk-pace.ts";

const MiB = 1024 * 1024;

describe("when the disk is measured again", () => {
  test.for([
    { what: "one that does not grow", usedBytes: 0, growthBytesPerMs: 0, lastDurationMs: 1, delayMs: 1_000 },
    {
      what: "one that is full and does not grow",
      usedBytes: 100 * MiB,
      growthBytesPerMs: 0,
      lastDurationMs: 1,
      delayMs: 1_000,
    },
    {
      what: "one that fills in 1 s",
      usedBytes: 60 * MiB,
      growthBytesPerMs: MiB / 25,
      lastDurationMs: 1,
      delayMs: 500,
    },
    { what: "one that fills in 40 ms", usedBytes: 60 * MiB, growthBytesPerMs: MiB, lastDurationMs: 1, delayMs: 100 },
    { what: "one that fills in a day", usedBytes: 0, growthBytesPerMs: 1, lastDurationMs: 1, delayMs: 1_000 },
    {
      what: "one over its limit that grows",
      usedBytes: 200 * MiB,
      growthBytesPerMs: 1,
      lastDurationMs: 1,
      delayMs: 100,
    },
    {
      what: "one that is slow to measure",
      usedBytes: 60 * MiB,
      growthBytesPerMs: MiB,
      lastDurationMs: 80,
      delayMs: 800,
    },
    {
      what: "one that is very slow to measure",
      usedBytes: 0,
      growthBytesPerMs: 0,
      lastDurationMs: 3_000,
      delayMs: 30_000,
    },
  ])("$what: after $delayMs ms", ({ usedBytes, growthBytesPerMs, lastDurationMs, delayMs }) => {
    expect(nextDiskDelay({ usedBytes, allowedBytes: 100 * MiB, growthBytesPerMs, lastDurationMs })).toBeCloseTo(
      delayMs,
    );
  });
});
