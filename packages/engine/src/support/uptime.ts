import { uptime } from "node:os";

/**
 * Returns the time since the machine started, including time asleep: `CLOCK_BOOTTIME`, to a hundredth of a second. The
 * result is never ahead of that clock.
 */
export function uptimeMs(): number {
  return Math.floor(uptime() * 1000);
}
