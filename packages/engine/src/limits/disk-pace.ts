const shortestDelayMs = 100;
const longestDelayMs = 1_000;

/** Measuring may take a tenth of one core at most. */
const mostShareOfTime = 0.1;

export interface DiskPace {
  usedBytes: number;
  allowedBytes: number;
  growthBytesPerMs: number;
  /** How long the last measurement took. */
  lastDurationMs: number;
}

/**
 * Returns when to measure again: after half the time in which the free space would be used up at the present growth, so
 * that a sandbox that speeds up is still caught near its limit; but not so often that measuring becomes the main work.
 */
export function nextDiskDelay({ usedBytes, allowedBytes, growthBytesPerMs, lastDurationMs }: DiskPace): number {
  const roomBytes = Math.max(0, allowedBytes - usedBytes);
  const untilFullMs = growthBytesPerMs > 0 ? roomBytes / growthBytesPerMs : Infinity;
  const wantedMs = Math.min(Math.max(untilFullMs / 2, shortestDelayMs), longestDelayMs);
  return Math.max(wantedMs, lastDurationMs / mostShareOfTime);
}
