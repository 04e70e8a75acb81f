import { z } from "zod";

const MiB = 1024 * 1024;

/** The units and bounds of each limit. */
export const amounts = {
  /** The memory of everything in the sandbox and of the runtime that runs it. */
  memoryBytes: z
    .int()
    .min(64 * MiB)
    .max(1024 * 1024 * MiB),
  /** 1 is the time of one core. */
  cpus: z.number().min(0.05).max(1024),
  /** Processes and threads per user in the sandbox. */
  processes: z.int().min(8).max(100_000),
  /** How much the sandbox may write on top of its template. */
  diskBytes: z
    .int()
    .min(1 * MiB)
    .max(64 * 1024 * 1024 * MiB),
  /** The size of `/tmp`, which is in memory. */
  tmpBytes: z.int().min(1 * MiB),
  /** The size of the largest single file. */
  fileBytes: z.int().min(4096),
  /** How long the code runs, without the time in which it is paused. */
  runTimeMs: z
    .int()
    .min(1_000)
    .max(365 * 24 * 3_600_000),
};
const { fileBytes: _, runTimeMs: __, ...bounded } = amounts;

/**
 * What one sandbox may use. The host's kernel enforces these limits or the host measures them; nothing relies on code
 * in the sandbox.
 */
export const SandboxLimits = z.strictObject({
  memoryBytes: amounts.memoryBytes.default(1024 * MiB),
  cpus: amounts.cpus.default(2),
  processes: amounts.processes.default(512),
  diskBytes: amounts.diskBytes.default(4096 * MiB),
  fileBytes: amounts.fileBytes.optional(),
  tmpBytes: amounts.tmpBytes.default(256 * MiB),
  /** The sandbox is killed when it reaches this age. */
  lifetimeMs: z
    .int()
    .min(1)
    .max(365 * 24 * 3_600_000)
    .optional(),
});
export type SandboxLimits = z.output<typeof SandboxLimits>;
export type SandboxLimitsInput = z.input<typeof SandboxLimits>;

/**
 * The limits that a client asks for. The server fills in those that are left out, within what the key and the server
 * allow.
 */
export const AskedLimits = z.strictObject(bounded).partial().extend({ fileBytes: SandboxLimits.shape.fileBytes });
export type AskedLimits = z.output<typeof AskedLimits>;

/** The most that one sandbox may be given, and how many sandboxes may exist at a time. */
export const LimitCeilings = z.strictObject({ ...bounded, sandboxes: z.int().min(0).max(100_000) }).partial();
export type LimitCeilings = z.output<typeof LimitCeilings>;

/**
 * The usage of a sandbox at one time. Processes, with their threads, are counted in the sandbox; the rest is measured
 * on the host.
 */
export interface SandboxUsage {
  readAtMs: number;
  memoryBytes: number;
  memoryPeakBytes: number;
  cpuMs: number;
  processes: number;
  diskBytes: number;
}

export type LimitName = "memory" | "cpu" | "disk" | "processes" | "lifetime";
