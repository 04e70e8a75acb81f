import type { EndReason, SandboxRecord } from "@atoll/protocol";
import { based, standsOn } from "../checkpoints/dependents.ts";
import type { CommonRecord } from "./record-keeper.ts";

/** Returns the record of a sandbox that has failed now. If it was being paused, that checkpoint does not count. */
export function failedNow(common: CommonRecord, record: SandboxRecord, reason: EndReason): SandboxRecord {
  const base = standsOn(record);
  const survives = ["files" as const, ...(base === undefined ? [] : ["checkpoints" as const])];
  return { ...common, state: "failed", reason, endedAtMs: Date.now(), survives, ...based(base) };
}

/** Returns the record of a failed sandbox whose restart without memory failed: the first failure stays. */
export function failedRestart(
  common: CommonRecord,
  { failure, base }: Extract<SandboxRecord, { failure: unknown }>,
): SandboxRecord {
  return { ...common, state: "failed", ...failure, ...based(base) };
}
