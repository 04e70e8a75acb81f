import { SandboxError } from "@atoll/protocol";
import { longestTtlMs } from "./lease-document.ts";

/**
 * How much a server's clock may run too fast or too slow. Crystals are off by 0.01 % and NTP slews by 0.05 % at most.
 * The safety of leases depends on no server being off by more than this, and on nothing else about clocks.
 */
const driftRate = 0.01;

/** Two clock readings, each with a resolution of ten milliseconds. */
const clockGrainMs = 20;

/** For how long an observer must see the same renewal, by its own clock, until `ttlMs` have passed by every clock. */
export function silenceMs(ttlMs: number): number {
  return Math.ceil((ttlMs * (1 + driftRate)) / (1 - driftRate)) + clockGrainMs;
}

export interface LeaseTiming {
  /** For how long a renewal is valid, from before it was sent. */
  ttlMs: number;
  /**
   * How much of that time is left for stopping the sandbox when no renewal succeeds: the lease is lost this much
   * earlier.
   */
  stopMs: number;
  /** How long after a renewal the next one is sent. */
  renewMs: number;
  /** How often an owner looks for a waiter in between. */
  watchMs: number;
  /** How long one call of the store may take before it counts as unanswered. */
  callMs: number;
  /** How long to wait after a failed call. */
  retryMs: number;
  /** How often a waiter looks. */
  pollMs: number;
  /** For how long a waiter's place is kept without a renewal. */
  waiterTtlMs: number;
}

/**
 * Derives every time that is not given from `ttlMs`. Refuses timings under which one slow call would lose the lease.
 */
export function completeTiming(given: Partial<LeaseTiming> = {}): LeaseTiming {
  const ttlMs = given.ttlMs ?? 15_000;
  const timing: LeaseTiming = {
    ttlMs,
    stopMs: ttlMs / 3,
    renewMs: ttlMs / 5,
    watchMs: Math.min(1000, ttlMs / 15),
    callMs: ttlMs / 5,
    retryMs: ttlMs / 30,
    pollMs: Math.min(250, ttlMs / 30),
    waiterTtlMs: ttlMs,
    ...given,
  };
  const { stopMs, renewMs, callMs, waiterTtlMs } = timing;
  const isPositive = Object.values(timing).every((value) => Number.isFinite(value) && value > 0);
  const isInBounds = Math.max(ttlMs, waiterTtlMs) <= longestTtlMs && [ttlMs, waiterTtlMs].every(Number.isInteger);
  // A renewal whose answer is lost takes a second call to find out, and a third to retry.
  if (isPositive && isInBounds && renewMs + 2 * callMs <= ttlMs - stopMs) return timing;
  throw new SandboxError("invalid_argument", "Cannot keep leases with these times: a slow answer would lose them", {
    suggestion: `Keep renewMs + 2 * callMs within ttlMs - stopMs, and everything above 0 and at most ${longestTtlMs}.`,
    details: { timing },
  });
}
