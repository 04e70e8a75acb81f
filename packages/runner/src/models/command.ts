import { z } from "zod";

/** How a command ended. Exactly one of these is true; an exit code is never invented for the others. */
export const CommandEnd = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("exit"), code: z.int() }),
  z.object({ kind: z.literal("signal"), signal: z.string() }),
  /** The time limit of the command, or of output, was reached, and its whole process tree was killed. */
  z.object({ kind: z.literal("timeout"), limitMs: z.int(), reason: z.enum(["total", "silent"]).default("total") }),
  z.object({ kind: z.literal("oom") }),
  /** The command was stopped because the run was interrupted. */
  z.object({ kind: z.literal("aborted") }),
  /** The command could not be started, or its end cannot be known. This is a failure of the infrastructure. */
  z.object({ kind: z.literal("lost"), reason: z.string() }),
]);
export type CommandEnd = z.infer<typeof CommandEnd>;

/**
 * One stream of one command, stored as a file. `bytes` counts everything written, `dropped` what is not in the file.
 */
export const OutputFile = z.object({
  /** Relative to the directory of the run. */
  path: z.string(),
  bytes: z.int().min(0),
  dropped: z.int().min(0),
  /** The digest of all bytes, including dropped ones. */
  sha256: z.string(),
  /** The first and the last bytes as text; invalid UTF-8 is replaced. `tail` is empty when `head` has everything. */
  head: z.string(),
  tail: z.string(),
});
export type OutputFile = z.infer<typeof OutputFile>;

export const CommandResult = z.object({
  argv: z.array(z.string()),
  cwd: z.string(),
  /** Variables that this command adds to the environment of its sandbox. Values of secrets are redacted. */
  env: z.record(z.string(), z.string()),
  user: z.string(),
  startedAt: z.iso.datetime(),
  durationMs: z.number().min(0),
  end: CommandEnd,
  stdout: OutputFile,
  stderr: OutputFile,
});
export type CommandResult = z.infer<typeof CommandResult>;

/** A command to run in a sandbox. */
export interface CommandSpec {
  argv: readonly string[];
  cwd?: string;
  env?: Readonly<Record<string, string>>;
  /** `root` or `user`; `user` by default. */
  user?: "root" | "user";
  stdin?: Uint8Array;
  timeoutMs: number;
  /** The command is killed when it prints nothing for this long. */
  silentTimeoutMs?: number;
}

export const succeeded = (end: CommandEnd): boolean => end.kind === "exit" && end.code === 0;

/** One line for a person: `exit 1`, `signal SIGKILL`, `timeout after 30 s`. */
export function describeEnd(end: CommandEnd): string {
  switch (end.kind) {
    case "exit":
      return `exit ${end.code}`;
    case "signal":
      return `signal ${end.signal}`;
    case "timeout":
      return end.reason === "silent"
        ? `no output for ${end.limitMs / 1000} s`
        : `timeout after ${end.limitMs / 1000} s`;
    case "oom":
      return "out of memory";
    case "aborted":
      return "interrupted";
    case "lost":
      return `lost: ${end.reason}`;
  }
}
