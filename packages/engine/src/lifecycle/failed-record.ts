import type { EndReason, SandboxRecord } from "@atoll/protocol";
import { optionalBase, currentCheckpoint } from "../checkpoints/current-checkpoint.ts";
import type { CommonRecord } from "./record-keeper.ts";

/** Returns the record of a sandbox that has failed now. If it was being paused, that checkpoint does not count. */
export function failedRecord(common: CommonRecord, record: SandboxRecord, reason: EndReason): SandboxRecord {
  const base = currentCheckpoint(record);
  const survives = ["files" as const, ...(base === undefined ? [] : ["checkpoints" as const])];
  return { ...common, state: "failed", reason, endedAtMs: Date.now(), survives, ...optionalBase(base) };
}

/** Returns the record of a failed sandbox whose restart without memory failed: the first failure stays. */
export function failedRestart(
  common: CommonRecord,
  { failure, base }: Extract<SandboxRecord, { failure: unknown }>,
): SandboxRecord {
  return { ...common, state: "failed", ...failure, ...optionalBase(base) };
}
