import {
  EndReason,
  ImportedRecord,
  MachineNeeds,
  SandboxId,
  ServerRef,
  TakenOver,
  type SandboxInfo,
  type SandboxRecord,
} from "@atoll/protocol";
import { z } from "zod";
import { heldBy, SandboxSettings } from "../manager/sandbox-settings.ts";

/** `metadata.json`: the truth about a persistent sandbox, written by the owner of its lease alone. */
export const SandboxMetadata = z.strictObject({
  version: z.literal(1),
  id: SandboxId,
  facts: SandboxSettings,
  /** What its engine knows, for one that never had it. */
  record: ImportedRecord,
  /**
   * `running`: `server` runs it, or is about to, and has what no checkpoint has. `paused`: `checkpoint` is all of it.
   * `moving`: the same, but whoever takes it brings it back to life, because it ran until another server asked for it.
   */
  state: z.enum(["running", "paused", "moving"]),
  /** The last one that had it. */
  server: ServerRef,
  /** What a server needs to go on with it as it runs now, so that one that cannot does not ask for it. */
  needs: MachineNeeds.optional(),
  /** The last one that is stored; absent: none is. */
  checkpoint: z.strictObject({ n: z.int().min(1), createdAtMs: z.int() }).optional(),
  /** The one that it is about to be taken back to. It is kept as `checkpoint` is, so that it can become that. */
  wanted: z.int().min(1).optional(),
  /** Every smaller number is taken, also where no such checkpoint was ever stored. */
  nextCheckpoint: z.int().min(1),
  runningCommands: z.int().min(0),
  takenOver: TakenOver.optional(),
  /**
   * Why it ended, of one that is `running` by its state: what `server` has of it is stored nowhere, and stays there.
   */
  failure: EndReason.optional(),
  /** It is being removed, and nobody may have it again. */
  isKilled: z.boolean(),
});
export type SandboxMetadata = z.infer<typeof SandboxMetadata>;

/** Its checkpoints that stay in the store, whatever the policy says. */
export function neededCheckpoints({ checkpoint, wanted }: SandboxMetadata): number[] {
  return [checkpoint?.n, wanted].filter((n) => n !== undefined);
}

export function importedRecordOf(record: SandboxRecord): ImportedRecord {
  const { id, driver, template, limits, createdAtMs, labels, expiresAtMs } = record;
  return { id, driver, template, limits, createdAtMs, labels, ...(expiresAtMs === undefined ? {} : { expiresAtMs }) };
}

/** As clients of a server are told that does not have it. */
export function infoFrom(metadata: SandboxMetadata, { isArriving }: { isArriving: boolean }): SandboxInfo {
  const { id, facts, record, state, server, checkpoint, runningCommands, takenOver, failure } = metadata;
  const holder = heldBy(facts);
  const isRunning = state === "running";
  return {
    id,
    state: failure !== undefined ? "failed" : isArriving ? "resuming" : isRunning ? "running" : "paused",
    template: record.template,
    driver: record.driver,
    limits: record.limits,
    labels: facts.labels,
    timeouts: facts.timeouts,
    egress: facts.egress,
    createdAtMs: facts.createdAtMs,
    owner: facts.owner,
    ...(holder === undefined ? {} : { heldBy: holder }),
    ...(failure === undefined ? {} : { reason: failure }),
    runningCommands,
    // What one that runs elsewhere stands on may be stored nowhere.
    ...(isRunning || checkpoint === undefined ? {} : { checkpoint: checkpoint.n }),
    ...(facts.rollbacks === undefined ? {} : { rollbacks: facts.rollbacks }),
    persistent: true,
    ...(isRunning ? { server } : {}),
    ...(takenOver === undefined ? {} : { takenOver }),
  };
}
