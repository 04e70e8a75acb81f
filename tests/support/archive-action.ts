import type { ImportedRecord, SandboxId } from "@atoll/protocol";
import type { ObjectStore } from "@atoll/storage";
import { CheckpointCollector } from "../../packages/server/src/persistence/checkpoint-collector.ts";
import { createLog } from "../../packages/server/src/telemetry/log.ts";

/** The action that an `archive-worker.ts` carries out. */
export type ArchiveAction =
  | { do: "publish"; id: SandboxId; n: number }
  | { do: "fetch"; record: ImportedRecord; n: number }
  /** `nowMs` replaces the clock, so that a test need not wait until the grace period has passed. */
  | { do: "collect"; keepLast: number; nowMs: number; graceMs: number };

/** Runs the collector once over a store. */
export async function collect(
  store: ObjectStore,
  { keepLast, nowMs, graceMs }: Extract<ArchiveAction, { do: "collect" }>,
): Promise<void> {
  const options = { store, policy: { keepLast }, statusOf: async () => undefined, log: createLog("silent") };
  await new CheckpointCollector({ ...options, graceMs, nowMs: () => nowMs }).collect();
}
