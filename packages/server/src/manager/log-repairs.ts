import type { Repair } from "@atoll/engine";
import type { Logger } from "pino";

/** Tells whoever runs the server what its predecessor left and what became of it. What needs a person is a warning. */
export function logRepairs(repairs: readonly Repair[], log: Logger): void {
  for (const { what, done, because } of repairs) {
    const level = done === "reported" || done === "failed" ? "warn" : "info";
    log[level]({ what, done, because }, "found at start");
  }
}
