import { z } from "zod";
import { ContainerId, SandboxId, TemplateName } from "./ids.ts";
import { SandboxLimits } from "./limits.ts";

export const DriverName = z.enum(["gvisor", "local"]);
export type DriverName = z.infer<typeof DriverName>;

/**
 * What a dead server leaves for the next one to find a container by. Process ids are reused; a process id with its
 * start time is unique.
 */
export const ContainerRef = z.strictObject({
  id: ContainerId,
  pid: z.int().min(1),
  /** Clock ticks since boot, field 22 of /proc/<pid>/stat. */
  startTicks: z.int().min(0),
  /** Process ids and start times mean something only within one boot. */
  bootId: z.string(),
});
export type ContainerRef = z.infer<typeof ContainerRef>;

/** The checkpoint whose layers lie below the sandbox's own; absent when there is only the template. */
const base = z.int().min(1).optional();

const common = {
  version: z.literal(1),
  id: SandboxId,
  driver: DriverName,
  template: TemplateName,
  limits: SandboxLimits,
  createdAtMs: z.int(),
  /** When the lifetime ends; absent if never. */
  expiresAtMs: z.int().optional(),
  labels: z.record(z.string(), z.string()),
};

/** Why a sandbox is `failed` or was ended, in words and in facts. */
export const EndReason = z.strictObject({
  kind: z.enum([
    "asked",
    "lifetime",
    "run_time",
    "idle",
    "memory",
    "disk",
    "processes",
    "guest",
    "seccomp",
    "exited",
    "start",
    "server",
    "driver",
  ]),
  message: z.string(),
});
export type EndReason = z.infer<typeof EndReason>;

/** A process that could not be saved, and was ended because the pause was asked for with `force`. */
export const EndedProcess = z.strictObject({ pid: z.int(), command: z.string() });
export type EndedProcess = z.infer<typeof EndedProcess>;

const failure = {
  reason: EndReason,
  endedAtMs: z.int(),
  /** What is still there, to show to the user. */
  survives: z.array(z.enum(["files", "checkpoints"])),
};

const RecordByState = z.discriminatedUnion("state", [
  z.strictObject({ ...common, state: z.literal("creating"), containerId: ContainerId }),
  z.strictObject({ ...common, state: z.literal("running"), container: ContainerRef, base }),
  z.strictObject({
    ...common,
    state: z.literal("pausing"),
    container: ContainerRef,
    base,
    /** The checkpoint that is being made. */
    checkpoint: z.int().min(1),
  }),
  z.strictObject({ ...common, state: z.literal("paused"), checkpoint: z.int().min(1) }),
  z.strictObject({ ...common, state: z.literal("resuming"), checkpoint: z.int().min(1), containerId: ContainerId }),
  z.strictObject({ ...common, state: z.literal("killing"), reason: EndReason }),
  z.strictObject({ ...common, state: z.literal("killed"), reason: EndReason, endedAtMs: z.int() }),
  z.strictObject({
    ...common,
    state: z.literal("failed"),
    ...failure,
    base,
  }),
  z.strictObject({ ...common, state: z.literal("released") }),
]);
/** The record while a failed sandbox restarts on the files that it wrote, without a checkpoint. */
const Restarting = z.strictObject({
  ...common,
  state: z.literal("resuming"),
  containerId: ContainerId,
  base,
  /** The failure to go back to if the restart fails. */
  failure: z.strictObject(failure),
});

/**
 * The stored truth about one sandbox, one variant per state: a running one has a container, a failed one has a reason.
 * The variants for pausing and resuming hold what is needed to repeat them after a crash.
 */
export const SandboxRecord = z.union([RecordByState, Restarting]);
export type SandboxRecord = z.infer<typeof SandboxRecord>;

const { version: _, ...portable } = common;
/** What goes with a sandbox to another machine; the rest is in its checkpoint. */
export const ImportedRecord = z.strictObject(portable);
export type ImportedRecord = z.infer<typeof ImportedRecord>;

/** The input of `create`. */
export const CreateRequest = z.strictObject({
  template: TemplateName.default("host" as TemplateName),
  driver: DriverName.default("gvisor"),
  limits: SandboxLimits.prefault({}),
  labels: z
    .record(z.string().min(1).max(63), z.string().max(255))
    .refine((labels) => Object.keys(labels).length <= 64, "at most 64 labels")
    .default({}),
});
export type CreateRequest = z.output<typeof CreateRequest>;
export type CreateRequestInput = z.input<typeof CreateRequest>;
