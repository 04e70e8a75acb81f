import { z } from "zod";
import { ListedCheckpoint, PhaseTimes } from "./checkpoint.ts";
import { EgressPolicy } from "./egress.ts";
import { SandboxId, TemplateName } from "./ids.ts";
import { sandboxStates } from "./lifecycle.ts";
import { AskedLimits, SandboxLimits } from "./limits.ts";
import { DriverName, EndedProcess, EndReason } from "./sandbox.ts";
import { SnapshotRef } from "./snapshot.ts";

const longestMs = 365 * 24 * 3_600_000;

/** When a sandbox ends by itself. */
export const SandboxTimeouts = z.strictObject({
  /**
   * Idle: no request, no open connection to a port, and no process inside but those of commands with `keepAlive:
   * false`. Absent: it may be idle for ever.
   */
  idleMs: z.int().min(1_000).max(longestMs).optional(),
  /** From creation or the last resume on, whatever it does. A paused sandbox does not age. */
  lifetimeMs: z.int().min(1_000).max(longestMs).optional(),
  /** What happens at either. */
  onTimeout: z.enum(["kill", "pause"]).default("kill"),
});
export type SandboxTimeouts = z.output<typeof SandboxTimeouts>;

const Labels = z
  .record(z.string().min(1).max(63), z.string().max(255))
  .refine((labels) => Object.keys(labels).length <= 64, "at most 64 labels");

export const CreateSandbox = z.strictObject({
  /** Begins with these files; the template is theirs. */
  snapshot: SnapshotRef.optional(),
  template: TemplateName.default("host" as TemplateName),
  driver: DriverName.default("gvisor"),
  limits: SandboxLimits.omit({ lifetimeMs: true }).prefault({}),
  labels: Labels.default({}),
  timeouts: SandboxTimeouts.prefault({ idleMs: 15 * 60_000 }),
  egress: EgressPolicy.prefault({}),
  /** In the environment of every command. */
  env: z.record(z.string().regex(/^[^=\0]+$/), z.string()).default({}),
  /**
   * It outlives its server: what a pause saves goes to the server's stores, and any server that shares them can go on
   * with it.
   */
  persistent: z.boolean().default(false),
});
export type CreateSandbox = z.output<typeof CreateSandbox>;
export type CreateSandboxInput = z.input<typeof CreateSandbox>;

/** As it comes over the wire. */
export const CreateSandboxBody = CreateSandbox.extend({
  limits: AskedLimits.prefault({}).describe(
    "Left out: 1 GiB of memory, 2 CPUs, 512 processes, 4 GiB of disk and 256 MiB of /tmp, or what the key and the server allow where that is less",
  ),
});

export const UpdateSandbox = z.strictObject({
  timeouts: SandboxTimeouts.optional(),
  labels: Labels.optional(),
});
export type UpdateSandboxInput = z.input<typeof UpdateSandbox>;

/** A server, as others know it. */
export const ServerRef = z.strictObject({ id: z.string().min(1).max(200), url: z.string().max(2048) });
export type ServerRef = z.infer<typeof ServerRef>;

/** Another server had it, and went silent: what happened after its last stored checkpoint is not there. */
export const TakenOver = z.strictObject({
  fromServer: ServerRef,
  /** What it goes on from, and when that was saved. */
  checkpoint: z.int().min(1),
  createdAtMs: z.int(),
  takenAtMs: z.int(),
});
export type TakenOver = z.infer<typeof TakenOver>;

export const SandboxInfo = z.strictObject({
  id: SandboxId,
  state: z.enum(sandboxStates),
  template: z.string(),
  driver: DriverName,
  limits: SandboxLimits,
  labels: z.record(z.string(), z.string()),
  timeouts: SandboxTimeouts,
  egress: EgressPolicy,
  createdAtMs: z.int(),
  /** When it will end if nothing happens; absent: never. */
  endsAtMs: z.int().optional(),
  /** The key that created it. */
  owner: z.string(),
  /** Set while one client has it for itself. */
  heldBy: z.string().optional(),
  reason: EndReason.optional(),
  /**
   * Set while it runs and what is inside cannot be reached: requests are refused with `guest_silent`. It can be killed,
   * and a snapshot of its files be taken.
   */
  guest: z.literal("unresponsive").optional(),
  /** Of one that runs on another server: as it was when that server last wrote down what it knows. */
  runningCommands: z.int(),
  /**
   * The checkpoint that it stands on: what it was last paused as, resumed from or rolled back to. Of one that runs,
   * only the server that has it tells.
   */
  checkpoint: z.int().optional(),
  /** How often it was rolled back; absent: never. */
  rollbacks: z.int().optional(),
  persistent: z.boolean(),
  /** Which one has it. Absent of a persistent one that is paused: any may go on with it. */
  server: ServerRef.optional(),
  /** The last time that this happened. */
  takenOver: TakenOver.optional(),
});
export type SandboxInfo = z.infer<typeof SandboxInfo>;

/** The token attaches to this sandbox without a key. It is told once, here, and stored only as a hash. */
export const SandboxCreated = z.strictObject({ sandbox: SandboxInfo, token: z.string() });
export type SandboxCreated = z.infer<typeof SandboxCreated>;

export const ListSandboxes = z.strictObject({
  state: z.enum(sandboxStates).optional(),
  /** `name=value`; several are joined with commas, all must match. */
  label: z.string().max(2000).optional(),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  /** The `next` of the page before. */
  cursor: z.string().max(200).optional(),
});
export const SandboxPage = z.strictObject({ sandboxes: z.array(SandboxInfo), next: z.string().optional() });
export type SandboxPage = z.infer<typeof SandboxPage>;

export const PauseSandbox = z.strictObject({
  /** Ends the processes that stand in the way, and tells which. */
  force: z.boolean().default(false),
});

/** How long each phase took, and all together. */
const Timed = { phases: PhaseTimes, totalMs: z.number() };

export const SandboxPaused = z.strictObject({
  sandbox: SandboxInfo,
  checkpoint: z.int(),
  /** The processes that `force` has ended. */
  ended: z.array(EndedProcess),
  ...Timed,
});
export type SandboxPaused = z.infer<typeof SandboxPaused>;

export const ResumeSandbox = z.strictObject({
  /** False: no process is brought back; the sandbox starts afresh on its saved files. */
  memory: z.boolean().default(true),
});

export const SandboxResumed = z.strictObject({
  sandbox: SandboxInfo,
  /** What it stands on; absent for one that had failed and was never paused. */
  checkpoint: z.int().optional(),
  ...Timed,
});
export type SandboxResumed = z.infer<typeof SandboxResumed>;

export const ForkSandbox = z.strictObject({
  count: z.int().min(1).max(64).default(1),
  /** As for a pause: the copies are made of a checkpoint. */
  force: z.boolean().default(false),
});

export const SandboxForked = z.strictObject({
  sandboxes: z.array(SandboxCreated),
  /** Of the parent. */
  checkpoint: z.int(),
  ...Timed,
});
export type SandboxForked = z.infer<typeof SandboxForked>;

export const RollBackSandbox = z.strictObject({
  checkpoint: z.int().min(1),
  /** As for a pause: what is left behind becomes a checkpoint. */
  force: z.boolean().default(false),
});

export const SandboxRolledBack = z.strictObject({
  sandbox: SandboxInfo,
  checkpoint: z.int(),
  /** The checkpoint of what was left behind; absent: the sandbox was paused, and it is there already. */
  left: z.int().optional(),
  ...Timed,
});
export type SandboxRolledBack = z.infer<typeof SandboxRolledBack>;

export const CheckpointList = z.strictObject({ checkpoints: z.array(ListedCheckpoint) });

export const UsageInfo = z.strictObject({
  readAtMs: z.int(),
  memoryBytes: z.int(),
  memoryPeakBytes: z.int(),
  cpuMs: z.number(),
  processes: z.int(),
  diskBytes: z.int(),
});

export const PortInfo = z.strictObject({
  url: z.string(),
  port: z.int(),
  isPublic: z.boolean(),
  token: z.string().optional(),
});
export type PortInfo = z.infer<typeof PortInfo>;

export const TemplateInfo = z.strictObject({ name: z.string(), kind: z.string(), isBuiltIn: z.boolean() });
