import { uptime } from "node:os";

/**
 * Since the machine was started, with the time that it slept: `CLOCK_BOOTTIME`, to a hundredth of a second. Never ahead
 * of that clock.
 */
export function uptimeMs(): number {
  return Math.floor(uptime() * 1000);
}
