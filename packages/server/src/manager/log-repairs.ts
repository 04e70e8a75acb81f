import type { Repair } from "@atoll/engine";
import type { Logger } from "pino";

/**
 * Logs what an earlier server left behind and what was done about it. What needs an operator is logged as a warning.
 */
export function logRepairs(repairs: readonly Repair[], log: Logger): void {
  for (const { what, done, because } of repairs) {
    const level = done === "reported" || done === "failed" ? "warn" : "info";
    log[level]({ what, done, because }, "found at start");
  }
}
