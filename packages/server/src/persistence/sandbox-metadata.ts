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
import { heldBy, profileOf, SandboxSettings } from "../manager/sandbox-settings.ts";

/** The file `metadata.json`, which is authoritative for a persistent sandbox. Only the owner of its lease writes it. */
export const SandboxMetadata = z.strictObject({
  version: z.literal(1),
  id: SandboxId,
  facts: SandboxSettings,
  /** The part of the engine's record that a server needs which never had the sandbox. */
  record: ImportedRecord,
  /**
   * The state in the stores. `running`: `server` runs it, or is about to, and has data that no checkpoint has.
   * `paused`: `checkpoint` is all of it. `moving`: the same, but the next server that acquires it resumes it, because
   * it ran until another server asked for it.
   */
  state: z.enum(["running", "paused", "moving"]),
  /** The last server that had it. */
  server: ServerRef,
  /** The features that a server needs to continue it, so that a server without them does not ask for it. */
  needs: MachineNeeds.optional(),
  /** The last stored checkpoint; absent if none is stored. */
  checkpoint: z.strictObject({ n: z.int().min(1), createdAtMs: z.int() }).optional(),
  /** The checkpoint of a rollback in progress. It is kept as `checkpoint` is, because it may become that. */
  wanted: z.int().min(1).optional(),
  /** The next free number. Every smaller number is taken, also where no such checkpoint was ever stored. */
  nextCheckpoint: z.int().min(1),
  runningCommands: z.int().min(0),
  takenOver: TakenOver.optional(),
  /**
   * Why it failed, while its state is `running`: the data that `server` has of it is stored nowhere else, and stays
   * there.
   */
  failure: EndReason.optional(),
  /** True if it is being removed; no server may acquire it again. */
  isKilled: z.boolean(),
});
export type SandboxMetadata = z.infer<typeof SandboxMetadata>;

/** Returns the checkpoints that stay in the store, whatever the policy says. */
export function neededCheckpoints({ checkpoint, wanted }: SandboxMetadata): number[] {
  return [checkpoint?.n, wanted].filter((n) => n !== undefined);
}

export function importedRecordOf(record: SandboxRecord): ImportedRecord {
  const { id, driver, template, limits, createdAtMs, labels, expiresAtMs } = record;
  return { id, driver, template, limits, createdAtMs, labels, ...(expiresAtMs === undefined ? {} : { expiresAtMs }) };
}

/** Describes a sandbox for clients of a server that does not have it. */
export function infoFrom(metadata: SandboxMetadata, { isBeingAcquired }: { isBeingAcquired: boolean }): SandboxInfo {
  const { id, facts, record, state, server, checkpoint, runningCommands, takenOver, failure } = metadata;
  const holder = heldBy(facts);
  const isRunning = state === "running";
  return {
    id,
    state: failure !== undefined ? "failed" : isBeingAcquired ? "resuming" : isRunning ? "running" : "paused",
    template: record.template,
    driver: record.driver,
    profile: profileOf(facts).name,
    limits: record.limits,
    labels: facts.labels,
    timeouts: facts.timeouts,
    egress: facts.egress,
    createdAtMs: facts.createdAtMs,
    owner: facts.owner,
    ...(holder === undefined ? {} : { heldBy: holder }),
    ...(failure === undefined ? {} : { reason: failure }),
    runningCommands,
    // The checkpoint that a sandbox elsewhere is based on may not be stored.
    ...(isRunning || checkpoint === undefined ? {} : { checkpoint: checkpoint.n }),
    ...(facts.rollbacks === undefined ? {} : { rollbacks: facts.rollbacks }),
    persistent: true,
    ...(isRunning ? { server } : {}),
    ...(takenOver === undefined ? {} : { takenOver }),
  };
}
