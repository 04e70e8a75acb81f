import { z } from "zod";
import { PhaseTimes } from "./checkpoint.ts";
import { SandboxId } from "./ids.ts";
import { IsolatedAs, ThreatKind } from "./isolation.ts";
import { guestConditions, sandboxStates } from "./lifecycle.ts";
import { ServerRef, TakenOver } from "./sandbox-api.ts";
import { EndedProcess, EndReason } from "./sandbox.ts";
import { HardLimitAction } from "./security-profile.ts";
import { SnapshotName } from "./snapshot.ts";

const base = { cursor: z.int(), atMs: z.int() };
const onSandbox = { ...base, sandboxId: SandboxId };
const limitFields = {
  limit: z.enum(["memory", "cpu", "disk", "processes", "lifetime"]),
  used: z.number(),
  allowed: z.number(),
};

/** What a sandbox or an application can leave behind on the host. */
export const leftoverKinds = ["cgroup", "mount", "process", "directory", "socket"] as const;

/**
 * The events of a server are one ordered stream. `cursor` grows by one with every event and never starts again, not
 * even when the server restarts. Only a machine that lost its power may have forgotten the last events.
 */
export const ApiEvent = z.discriminatedUnion("type", [
  z.strictObject({
    ...onSandbox,
    type: z.literal("sandbox.state"),
    from: z.enum(sandboxStates).nullable(),
    to: z.enum(sandboxStates),
    reason: EndReason.optional(),
    phases: PhaseTimes.optional(),
    /** The processes that were ended because they could not be saved. */
    ended: z.array(EndedProcess).optional(),
  }),
  /** While the guest is unresponsive, a client can only kill the sandbox or snapshot its files. */
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.guest"), guest: z.enum(guestConditions) }),
  z.strictObject({
    ...onSandbox,
    type: z.literal("sandbox.rolled_back"),
    checkpoint: z.int(),
    /** The checkpoint of the state before the rollback. */
    left: z.int().optional(),
  }),
  /** The sandbox reaches nothing and runs nothing until an operator releases or kills it. */
  z.strictObject({
    ...onSandbox,
    type: z.literal("sandbox.isolated"),
    kind: ThreatKind,
    reason: z.string(),
    heldAs: IsolatedAs,
  }),
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.isolation_ended"), who: z.string() }),
  z.strictObject({ ...onSandbox, type: z.literal("checkpoint.removed"), checkpoint: z.int() }),
  z.strictObject({
    ...onSandbox,
    type: z.literal("command.started"),
    commandId: z.string(),
    argv: z.array(z.string()),
    /** Set when the event carries only the start of `argv`; the command itself has all of it. */
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
  /** What the profile demands at a limit was done, or could not be done. */
  z.strictObject({
    ...onSandbox,
    type: z.literal("limit.enforced"),
    limit: limitFields.limit,
    action: HardLimitAction,
    result: z.enum(["done", "failed"]),
    because: z.string(),
  }),
  /** Something of a sandbox that has ended is still on the host. */
  z.strictObject({
    ...base,
    type: z.literal("resource.left"),
    kind: z.enum(leftoverKinds),
    what: z.string(),
  }),
  z.strictObject({ ...onSandbox, type: z.literal("egress.allowed"), host: z.string(), port: z.int() }),
  z.strictObject({
    ...onSandbox,
    type: z.literal("egress.refused"),
    host: z.string(),
    port: z.int(),
    because: z.string(),
    /**
     * The number of further denied connections that this event stands for. Where they went to many places, the host is
     * `*` and the port is 0.
     */
    more: z.int().min(1).optional(),
  }),
  z.strictObject({ ...base, type: z.literal("snapshot.created"), name: SnapshotName, owner: z.string() }),
  z.strictObject({ ...base, type: z.literal("snapshot.removed"), name: SnapshotName, owner: z.string() }),
  /** The sandbox's server stopped answering; the sandbox goes on here from its last stored checkpoint. */
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.taken_over"), ...TakenOver.shape }),
  /** The sandbox was saved and given to a server that asked for it. */
  z.strictObject({
    ...onSandbox,
    type: z.literal("sandbox.handed_over"),
    toServer: ServerRef,
    checkpoint: z.int().min(1),
    phases: PhaseTimes,
    /** The processes that were ended because they could not be saved. */
    ended: z.array(EndedProcess),
  }),
  /** This server has lost the right to run the sandbox, and has stopped it. */
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.lease_lost"), because: z.string() }),
  /** The copy of the sandbox on this server was outdated and has been removed: it runs, or was killed, elsewhere. */
  z.strictObject({ ...onSandbox, type: z.literal("sandbox.copy_dropped"), because: z.string() }),
  z.strictObject({
    ...base,
    type: z.literal("security.refused"),
    what: z.string(),
    because: z.string(),
    key: z.string().optional(),
  }),
  /**
   * Events before the cursor `before` are no longer kept, or could not be written. The stream goes on at `cursor`,
   * which is lower than the follower's if the server has forgotten some events.
   */
  z.strictObject({ ...base, type: z.literal("events.lost"), before: z.int() }),
]);
export type ApiEvent = z.infer<typeof ApiEvent>;
