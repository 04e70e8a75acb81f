import { z } from "zod";
import { EgressPolicy } from "./egress.ts";
import { amounts } from "./limits.ts";
import type { DriverName } from "./sandbox.ts";

const MiB = 1024 * 1024;

export const ProfileName = z
  .string()
  .regex(/^[a-z][a-z0-9-]{0,62}$/, "a profile name is 1 to 63 characters of a-z, 0-9 and -, and starts with a letter");

/**
 * How strongly the code is kept apart from the machine: with which drivers a sandbox may run (`driversOf`), and at
 * which levels a live application. It also decides which findings of a scan refuse the code of a live application.
 */
export const IsolationLevel = z.enum(["high", "medium", "low"]);
export type IsolationLevel = z.infer<typeof IsolationLevel>;

/**
 * What code may do beyond computing. `network_client` is every connection to the outside, and `network_server` that a
 * port can be reached from outside. For live applications, operations also decide which modules of Node can be imported
 * and called; the other operations are about that alone. In a sandbox, files, processes and code are its own, and are
 * always allowed.
 */
export const Operation = z.enum([
  "compute",
  "file_read",
  "file_write",
  "network_client",
  "network_server",
  "start_process",
  "dynamic_code",
]);
export type Operation = z.infer<typeof Operation>;

export const AuditLevel = z.enum(["full", "basic", "none"]);
export type AuditLevel = z.infer<typeof AuditLevel>;

/**
 * What is done when memory, processes or the disk reach their limit, beside what the limit itself does: the code gets
 * slower, the process that uses most is stopped (that of a live application starts again), the sandbox or app is
 * paused, or it is ended.
 */
export const HardLimitAction = z.enum(["throttle", "stop_process", "pause", "kill"]);
export type HardLimitAction = z.infer<typeof HardLimitAction>;

/** Live applications have `memoryBytes`, `cpus`, `processes`, `fileBytes` and `runTimeMs` only. */
export const ProfileLimits = z.strictObject({
  memoryBytes: amounts.memoryBytes,
  cpus: amounts.cpus,
  processes: amounts.processes,
  diskBytes: amounts.diskBytes.optional(),
  tmpBytes: amounts.tmpBytes.optional(),
  /** The size of the largest single file. */
  fileBytes: amounts.fileBytes.optional(),
  /**
   * How long a sandbox may run in total, without the time in which it is paused, and how long each call of a live
   * application may take. Absent: there is no limit.
   */
  runTimeMs: amounts.runTimeMs.optional(),
});
export type ProfileLimits = z.output<typeof ProfileLimits>;

const terms = {
  isolation: IsolationLevel,
  limits: ProfileLimits,
  allowedOperations: z.union([z.tuple([z.literal("all")]), z.array(Operation).max(Operation.options.length)]),
  /** Modules that live applications may not import, such as `node:child_process`. */
  restrictedModules: z.array(z.string().min(1).max(214)).max(1000).default([]),
  /**
   * What can be reached at most, and what a sandbox may reach when it is created without rules of its own. Absent: what
   * the key and the server allow, by rules of the sandbox's own.
   */
  egress: EgressPolicy.optional(),
  audit: AuditLevel.default("full"),
  /** The share of each limit at which a warning comes. */
  softLimit: z.number().min(0.1).max(1).default(0.8),
  onHardLimit: HardLimitAction.default("stop_process"),
};

/** What a sandbox or a live application may use and do, under one name. */
export const SecurityProfile = z.strictObject({ name: ProfileName, ...terms });
export type SecurityProfile = z.output<typeof SecurityProfile>;

/** A profile as the configuration of a server describes it, without its name. */
export const CustomProfile = z.strictObject(terms);
export type CustomProfile = z.output<typeof CustomProfile>;

/**
 * The profile of sandboxes and apps for which no other one was chosen. Its limits are the defaults of sandboxes; a
 * request may ask for more, within what the key and the server allow. At a limit nothing is done beside what the limit
 * itself does. What is audited of a sandbox under it is the setting `auditLevel` of the server.
 */
export const standardProfile = "standard";

const described: Record<string, z.input<typeof CustomProfile>> = {
  high: {
    isolation: "high",
    limits: {
      memoryBytes: 64 * MiB,
      cpus: 1,
      processes: 50,
      diskBytes: 256 * MiB,
      tmpBytes: 16 * MiB,
      fileBytes: 64 * MiB,
      runTimeMs: 60_000,
    },
    allowedOperations: ["compute"],
    egress: { allow: [] },
    audit: "full",
    onHardLimit: "kill",
  },
  medium: {
    isolation: "medium",
    limits: {
      memoryBytes: 128 * MiB,
      cpus: 1,
      processes: 100,
      diskBytes: 1024 * MiB,
      tmpBytes: 32 * MiB,
      fileBytes: 256 * MiB,
      runTimeMs: 300_000,
    },
    allowedOperations: ["compute", "file_read", "network_client"],
    egress: { allow: ["*"] },
    audit: "basic",
  },
  low: {
    isolation: "low",
    limits: {
      memoryBytes: 256 * MiB,
      cpus: 2,
      processes: 200,
      diskBytes: 4096 * MiB,
      tmpBytes: 64 * MiB,
      runTimeMs: 600_000,
    },
    allowedOperations: ["all"],
    egress: { allow: ["*"] },
    audit: "basic",
  },
  // It says what a sandbox has by default, and bounds nothing: the key and the server do.
  [standardProfile]: {
    isolation: "low",
    limits: { memoryBytes: 1024 * MiB, cpus: 2, processes: 512, diskBytes: 4096 * MiB, tmpBytes: 256 * MiB },
    allowedOperations: ["all"],
    audit: "basic",
    onHardLimit: "throttle",
  },
};

export const builtInProfiles: readonly SecurityProfile[] = Object.entries(described).map(([name, profile]) =>
  SecurityProfile.parse({ name, ...profile }),
);

/** The drivers that isolate a sandbox as strongly as each level asks for, the best first. */
export const driversOf: Record<IsolationLevel, readonly DriverName[]> = {
  high: ["gvisor"],
  medium: ["gvisor"],
  low: ["gvisor", "local"],
};

export function allowsOperation(
  { allowedOperations }: Pick<SecurityProfile, "allowedOperations">,
  operation: Operation,
): boolean {
  const allowed: readonly string[] = allowedOperations;
  return operation === "compute" || allowed.includes("all") || allowed.includes(operation);
}
