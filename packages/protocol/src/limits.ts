import { z } from "zod";

const MiB = 1024 * 1024;

const amounts = {
  /** Memory of everything in the sandbox and of the runtime that runs it. */
  memoryBytes: z
    .int()
    .min(64 * MiB)
    .max(1024 * 1024 * MiB),
  /** 1 is one core's worth of time. */
  cpus: z.number().min(0.05).max(1024),
  /** Processes and threads per user inside. */
  processes: z.int().min(8).max(100_000),
  /** Growth of the sandbox's own files over its template. */
  diskBytes: z
    .int()
    .min(1 * MiB)
    .max(64 * 1024 * 1024 * MiB),
  /** `/tmp`, which is memory. */
  tmpBytes: z.int().min(1 * MiB),
};

/** What one sandbox may use. Enforced by the host's kernel or measured by the host, never by trusting the inside. */
export const SandboxLimits = z.strictObject({
  memoryBytes: amounts.memoryBytes.default(1024 * MiB),
  cpus: amounts.cpus.default(2),
  processes: amounts.processes.default(512),
  diskBytes: amounts.diskBytes.default(4096 * MiB),
  /** The largest single file. */
  fileBytes: z.int().min(4096).optional(),
  tmpBytes: amounts.tmpBytes.default(256 * MiB),
  /** The sandbox is killed when it has lived this long. */
  lifetimeMs: z
    .int()
    .min(1)
    .max(365 * 24 * 3_600_000)
    .optional(),
});
export type SandboxLimits = z.output<typeof SandboxLimits>;
export type SandboxLimitsInput = z.input<typeof SandboxLimits>;

/** Limits as a client asks for them: the server fills in what is left out, within what the key and the server allow. */
export const AskedLimits = z.strictObject(amounts).partial().extend({ fileBytes: SandboxLimits.shape.fileBytes });
export type AskedLimits = z.output<typeof AskedLimits>;

/** The most that one sandbox may be given, and how many sandboxes there may be at a time. */
export const LimitCeilings = z.strictObject({ ...amounts, sandboxes: z.int().min(0).max(100_000) }).partial();
export type LimitCeilings = z.output<typeof LimitCeilings>;

/** One reading. Processes are counted inside, with their threads; the rest on the host. */
export interface SandboxUsage {
  readAtMs: number;
  memoryBytes: number;
  memoryPeakBytes: number;
  cpuMs: number;
  processes: number;
  diskBytes: number;
}

export type LimitName = "memory" | "cpu" | "disk" | "processes" | "lifetime";
