import type { SandboxRecord } from "@atoll/protocol";
import { based } from "../checkpoints/based.ts";
import type { CommonRecord } from "./record-keeper.ts";

/** Nothing came of starting it afresh: it is what it was. */
export function failedAgain(
  common: CommonRecord,
  { failure, base }: Extract<SandboxRecord, { failure: unknown }>,
): SandboxRecord {
  return { ...common, state: "failed", ...failure, ...based(base) };
}
