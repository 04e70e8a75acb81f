import type { ImportedRecord, SandboxId } from "@atoll/protocol";
import type { ObjectStore } from "@atoll/storage";
import { CheckpointCollector } from "../../packages/server/src/persistence/checkpoint-collector.ts";
import { createLog } from "../../packages/server/src/telemetry/log.ts";

/** What an `archive-worker.ts` does. */
export type ArchiveAction =
  | { do: "publish"; id: SandboxId; n: number }
  | { do: "fetch"; record: ImportedRecord; n: number }
  /** As if so much time had passed since the last look. */
  | { do: "collect"; keepLast: number; nowMs: number; graceMs: number };

/** One look at a store. */
export async function collect(
  store: ObjectStore,
  { keepLast, nowMs, graceMs }: Extract<ArchiveAction, { do: "collect" }>,
): Promise<void> {
  const options = { store, policy: { keepLast }, statusOf: async () => undefined, log: createLog("silent") };
  await new CheckpointCollector({ ...options, graceMs, nowMs: () => nowMs }).collect();
}
