import { z } from "zod";
import { ListedCheckpoint, PhaseTimes } from "./checkpoint.ts";
import { EgressPolicy } from "./egress.ts";
import { SandboxId, TemplateName } from "./ids.ts";
import { Isolated } from "./isolation.ts";
import { sandboxStates } from "./lifecycle.ts";
import { AskedLimits, SandboxLimits } from "./limits.ts";
import { DriverName, EndedProcess, EndReason } from "./sandbox.ts";
import { ProfileName, SecurityProfile } from "./security-profile.ts";
import { SnapshotRef } from "./snapshot.ts";

const longestMs = 365 * 24 * 3_600_000;

/** When a sandbox ends by itself. */
export const SandboxTimeouts = z.strictObject({
  /**
   * How long the sandbox may be idle: no request, no open connection to a port, and no process but those of commands
   * with `keepAlive: false`. Absent: it may be idle for ever.
   */
  idleMs: z.int().min(1_000).max(longestMs).optional(),
  /** How long the sandbox may live since it was created or last resumed. A paused sandbox does not age. */
  lifetimeMs: z.int().min(1_000).max(longestMs).optional(),
  /** What happens when either time is over. */
  onTimeout: z.enum(["kill", "pause"]).default("kill"),
});
export type SandboxTimeouts = z.output<typeof SandboxTimeouts>;

const Labels = z
  .record(z.string().min(1).max(63), z.string().max(255))
  .refine((labels) => Object.keys(labels).length <= 64, "at most 64 labels");

export const CreateSandbox = z.strictObject({
  /** What the sandbox may use and do; when left out, the profile of the key or the server, or `standard`. */
  profile: ProfileName.optional(),
  /** The sandbox starts with the files and on the template of this snapshot. */
  snapshot: SnapshotRef.optional(),
  template: TemplateName.default("host" as TemplateName),
  driver: DriverName.default("gvisor"),
  limits: SandboxLimits.omit({ lifetimeMs: true }).prefault({}),
  labels: Labels.default({}),
  timeouts: SandboxTimeouts.prefault({ idleMs: 15 * 60_000 }),
  egress: EgressPolicy.prefault({}),
  /** Variables in the environment of every command. */
  env: z.record(z.string().regex(/^[^=\0]+$/), z.string()).default({}),
  /**
   * A persistent sandbox outlives its server: a pause saves it to the server's stores, and any server that shares them
   * can resume it.
   */
  persistent: z.boolean().default(false),
});
export type CreateSandbox = z.output<typeof CreateSandbox>;
export type CreateSandboxInput = z.input<typeof CreateSandbox>;

/** The body of a request. */
export const CreateSandboxBody = CreateSandbox.extend({
  limits: AskedLimits.prefault({}).describe(
    "Where left out: 1 GiB of memory, 2 CPUs, 512 processes, 4 GiB of disk and 256 MiB of /tmp, or what the key " +
      "and the server allow where that is less; with a profile, its limits",
  ),
  driver: DriverName.optional().describe("Where left out: gvisor, or local where the profile and the server allow it"),
  egress: EgressPolicy.optional().describe("Where left out: what the profile allows, or nothing"),
});

export const UpdateSandbox = z.strictObject({
  timeouts: SandboxTimeouts.optional(),
  labels: Labels.optional(),
});
export type UpdateSandboxInput = z.input<typeof UpdateSandbox>;

/** A server, as other servers know it. */
export const ServerRef = z.strictObject({ id: z.string().min(1).max(200), url: z.string().max(2048) });
export type ServerRef = z.infer<typeof ServerRef>;

/**
 * Set when another server had the sandbox and stopped answering: what happened after its last stored checkpoint is
 * lost.
 */
export const TakenOver = z.strictObject({
  fromServer: ServerRef,
  /** The checkpoint that the sandbox went on from, and when it was saved. */
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
  /** The name of its security profile. */
  profile: z.string(),
  limits: SandboxLimits,
  labels: z.record(z.string(), z.string()),
  timeouts: SandboxTimeouts,
  egress: EgressPolicy,
  createdAtMs: z.int(),
  /** When the sandbox will end if nothing happens; absent if never. */
  endsAtMs: z.int().optional(),
  /** The key that created the sandbox. */
  owner: z.string(),
  /** Set while a client holds the sandbox. */
  heldBy: z.string().optional(),
  reason: EndReason.optional(),
  /**
   * Set while the sandbox runs and its guest does not answer: requests fail with `guest_silent`. The sandbox can be
   * killed, and a snapshot can be taken of its files.
   */
  guest: z.literal("unresponsive").optional(),
  /** Set while the sandbox is isolated: requests fail with `isolated` until an operator releases it. */
  isolated: Isolated.optional(),
  /** The number of running commands. For a sandbox on another server, the number that server last stored. */
  runningCommands: z.int(),
  /**
   * The checkpoint that the sandbox was last paused as, resumed from or rolled back to. Of a running sandbox, only the
   * server that has it returns this.
   */
  checkpoint: z.int().optional(),
  /** How often the sandbox was rolled back; absent if never. */
  rollbacks: z.int().optional(),
  persistent: z.boolean(),
  /** The server that has the sandbox. Absent for a persistent sandbox that is paused: any server may resume it. */
  server: ServerRef.optional(),
  /** The last time that a server took the sandbox over from one that stopped answering. */
  takenOver: TakenOver.optional(),
});
export type SandboxInfo = z.infer<typeof SandboxInfo>;

/** The token gives access to this sandbox without a key. It is returned only here; the server stores its hash. */
export const SandboxCreated = z.strictObject({ sandbox: SandboxInfo, token: z.string() });
export type SandboxCreated = z.infer<typeof SandboxCreated>;

export const ListSandboxes = z.strictObject({
  state: z.enum(sandboxStates).optional(),
  /** A label as `name=value`. Several are joined with commas, and all must match. */
  label: z.string().max(2000).optional(),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  /** The `next` of the page before. */
  cursor: z.string().max(200).optional(),
});
export const SandboxPage = z.strictObject({ sandboxes: z.array(SandboxInfo), next: z.string().optional() });
export type SandboxPage = z.infer<typeof SandboxPage>;

export const PauseSandbox = z.strictObject({
  /** Ends the processes that cannot be saved, and lists them in the answer. */
  force: z.boolean().default(false),
});

/** How long each phase took, and all of them together. */
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
  /** If false, no process is resumed; the sandbox restarts on its saved files. */
  memory: z.boolean().default(true),
});

export const SandboxResumed = z.strictObject({
  sandbox: SandboxInfo,
  /** The checkpoint of the sandbox; absent for one that had failed and was never paused. */
  checkpoint: z.int().optional(),
  ...Timed,
});
export type SandboxResumed = z.infer<typeof SandboxResumed>;

export const ForkSandbox = z.strictObject({
  count: z.int().min(1).max(64).default(1),
  /** Works as for a pause: a fork copies a checkpoint. */
  force: z.boolean().default(false),
});

export const SandboxForked = z.strictObject({
  sandboxes: z.array(SandboxCreated),
  /** The checkpoint of the parent. */
  checkpoint: z.int(),
  ...Timed,
});
export type SandboxForked = z.infer<typeof SandboxForked>;

export const RollBackSandbox = z.strictObject({
  checkpoint: z.int().min(1),
  /** Works as for a pause: the state before the rollback becomes a checkpoint. */
  force: z.boolean().default(false),
});

export const SandboxRolledBack = z.strictObject({
  sandbox: SandboxInfo,
  checkpoint: z.int(),
  /**
   * The checkpoint of the state before the rollback; absent if the sandbox was paused, because that checkpoint exists
   * already.
   */
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

/** A profile, and what it comes to on this machine for the key that asks. */
export const ResolvedProfile = z.strictObject({
  profile: SecurityProfile,
  isBuiltIn: z.boolean(),
  /** The profile of sandboxes of this key whose request names none. */
  isDefault: z.boolean(),
  /** What the machine, the server or the key would have to have, each with how to get it. Empty: it can be used. */
  missing: z.array(z.strictObject({ what: z.string(), fix: z.string() })),
  /** How a sandbox is run under it; absent if none can be. */
  driver: DriverName.optional(),
  /** The limits that a sandbox gets: those of the profile, lowered to what key and server allow. */
  limits: SandboxLimits,
  /** What a sandbox may reach when its request says nothing about it. */
  egress: EgressPolicy,
  /** How memory is counted. */
  memoryCounts: z.string(),
});
export type ResolvedProfile = z.infer<typeof ResolvedProfile>;
