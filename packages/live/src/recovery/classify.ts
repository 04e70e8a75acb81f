import { isSandboxError, type ErrorCode } from "@atoll/protocol";

/** What went wrong: the code of an app, what it did, what it needed, what it is not allowed, or what is around it. */
export const errorKinds = ["compilation", "runtime", "resource", "security", "system"] as const;
export type ErrorKind = (typeof errorKinds)[number];

/**
 * What can be done about it. `retry` does the same again; `rollback` goes back to the last good generation; `restart`
 * starts the process again, with its last states; `isolate` ends the process at once and takes no code until a restart
 * is requested; `terminate` ends the app in `error`, where the next edit starts it again.
 */
export const recoveries = ["retry", "rollback", "restart", "isolate", "terminate"] as const;
export type Recovery = (typeof recoveries)[number];

/** One row per code of the project's table of errors. */
const kinds: Readonly<Record<ErrorCode, ErrorKind>> = {
  invalid_argument: "runtime",
  invalid_state: "runtime",
  not_found: "runtime",
  already_exists: "runtime",
  permission_denied: "security",
  isolated: "security",
  in_use: "resource",
  lease_lost: "system",
  unsupported: "system",
  start_failed: "runtime",
  spawn_failed: "system",
  compile_failed: "compilation",
  reload_failed: "runtime",
  handler_failed: "runtime",
  sandbox_ended: "runtime",
  guest_violation: "security",
  guest_silent: "runtime",
  limit_reached: "resource",
  unsaveable: "runtime",
  unrestorable: "system",
  rolled_back: "system",
  conflict: "runtime",
  storage_failed: "system",
  no_space: "resource",
  file_error: "system",
  timed_out: "runtime",
  unavailable: "system",
  internal: "system",
};

/** What is known about an app when something went wrong. */
export interface RecoveryContext {
  /** How often it went wrong before. */
  attempts?: number;
  /** After so many restarts there is no other. The default is 3. */
  maxRestarts?: number;
  /** Whether the generation that runs has not held yet, and there is one before it. */
  isInProbation?: boolean;
  /** Whether an earlier generation than the one that runs has held. */
  hasLastGood?: boolean;
  /** Whether the process of the app runs and answers. */
  isRunning?: boolean;
}

/** The most attempts of a retry; each waits twice as long as the one before. */
export const maxRetries = 5;

/** An error that is not in the table is one of the system, because no code of an app reaches the host. */
export function classifyError(error: unknown): ErrorKind {
  if (!isSandboxError(error)) return "system";
  const { kind } = error.details as { kind?: unknown };
  return errorKinds.find((each) => each === kind) ?? kinds[error.code];
}

/** What helps against an error. The manager does the same when an app fails by itself. */
export function suggestRecovery(error: unknown, context: RecoveryContext = {}): Recovery {
  const { attempts = 0, maxRestarts = 3, isInProbation = false, hasLastGood = false, isRunning = false } = context;
  const kind = classifyError(error);
  if (kind === "security") return "isolate";
  // Nothing of code that does not compile, or that was refused, has been used: what runs is what to keep.
  if (kind === "compilation" || isSandboxError(error, "reload_failed")) return isRunning ? "rollback" : "terminate";
  if (isInProbation) return "rollback";
  const isTransient = kind === "system" && (!isSandboxError(error) || error.retryable);
  if (isTransient && attempts < maxRetries) return "retry";
  if (attempts < maxRestarts) return "restart";
  return hasLastGood ? "rollback" : "terminate";
}
