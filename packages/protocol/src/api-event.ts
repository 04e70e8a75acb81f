import { z } from "zod";
import { PhaseTimes } from "./checkpoint.ts";
import { SandboxId } from "./ids.ts";
import { guestConditions, sandboxStates } from "./lifecycle.ts";
import { ServerRef, TakenOver } from "./sandbox-api.ts";
import { EndedProcess, EndReason } from "./sandbox.ts";
import { SnapshotName } from "./snapshot.ts";

const base = { cursor: z.int(), atMs: z.int() };
const onSandbox = { ...base, sandboxId: SandboxId };
const limitFields = {
  limit: z.enum(["memory", "cpu", "disk", "processes", "lifetime"]),
  used: z.number(),
  allowed: z.number(),
};

/**
 * One ordered stream; `cursor` grows by one with every event and never starts again, also after a restart of the
 * server. Only a machine that lost its power may have forgotten the last ones.
 */
export const ApiEvent = z.discriminatedUnion("type", [
  z.strictObject({
    ...onSandbox,
    type: z.literal("sandbox.state"),
    from: z.enum(sandboxStates).nullable(),
    to: z.enum(sandboxStates),
    reason: EndReason.optional(),
    phases: PhaseTimes.optional(),
    /** The processes that were ended on the way, because they could not be saved. */
    ended: z.array(EndedProcess).optional(),
  }),
  /** Nothing can be asked of it but its end and its files, or everything again. */
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.guest"), guest: z.enum(guestConditions) }),
  z.strictObject({
    ...onSandbox,
    type: z.literal("sandbox.rolled_back"),
    checkpoint: z.int(),
    /** The checkpoint of what was left behind. */
    left: z.int().optional(),
  }),
  z.strictObject({ ...onSandbox, type: z.literal("checkpoint.removed"), checkpoint: z.int() }),
  z.strictObject({
    ...onSandbox,
    type: z.literal("command.started"),
    commandId: z.string(),
    argv: z.array(z.string()),
    /** There is more of `argv` than an event carries: the command itself has all of it. */
    isCut: z.literal(true).optional(),
  }),
  z.strictObject({
    ...onSandbox,
    type: z.literal("command.ended"),
    commandId: z.string(),
    exitCode: z.int().nullable(),
    signal: z.string().nullable(),
    timedOut: z.boolean(),
  }),
  z.strictObject({ ...onSandbox, type: z.literal("command.lost"), commandId: z.string(), because: z.string() }),
  z.strictObject({ ...onSandbox, type: z.literal("limit.near"), ...limitFields }),
  z.strictObject({ ...onSandbox, type: z.literal("limit.hit"), ...limitFields, consequence: z.string() }),
  z.strictObject({ ...onSandbox, type: z.literal("limit.eased"), ...limitFields }),
  z.strictObject({ ...onSandbox, type: z.literal("egress.allowed"), host: z.string(), port: z.int() }),
  z.strictObject({
    ...onSandbox,
    type: z.literal("egress.refused"),
    host: z.string(),
    port: z.int(),
    because: z.string(),
    /** It stands for so many that were not told one by one; host `*` and port 0 for those of many places. */
    more: z.int().min(1).optional(),
  }),
  z.strictObject({ ...base, type: z.literal("snapshot.created"), name: SnapshotName, owner: z.string() }),
  z.strictObject({ ...base, type: z.literal("snapshot.removed"), name: SnapshotName, owner: z.string() }),
  /** Its server went silent; it goes on here from what was last stored. */
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.taken_over"), ...TakenOver.shape }),
  /** Saved and given to a server that asked for it. */
  z.strictObject({
    ...onSandbox,
    type: z.literal("sandbox.handed_over"),
    toServer: ServerRef,
    checkpoint: z.int().min(1),
    phases: PhaseTimes,
    /** The processes that could not be saved and were ended for it. */
    ended: z.array(EndedProcess),
  }),
  /** This server may not run it any more, and has stopped it. */
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.lease_lost"), because: z.string() }),
  /** What was here of it is outdated, and was removed: it lives elsewhere, or was killed there. */
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.copy_dropped"), because: z.string() }),
  z.strictObject({
    ...base,
    type: z.literal("security.refused"),
    what: z.string(),
    because: z.string(),
    key: z.string().optional(),
  }),
  /**
   * Events before this cursor are no longer kept, or could not be. `cursor` is where it goes on, and lower than before
   * if the server has forgotten some.
   */
  z.strictObject({ ...base, type: z.literal("events.lost"), before: z.int() }),
]);
export type ApiEvent = z.infer<typeof ApiEvent>;
