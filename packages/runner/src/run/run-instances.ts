import { SandboxError } from "@atoll/protocol";
import type { RunReport } from "../models/report.ts";
import type { RunOptions } from "./run-options.ts";

/**
 * Runs every item to its verdict. A failure of one item is its verdict and not an error; rejects with `SandboxError`
 * only when the run as a whole cannot go on, such as with a directory that cannot be written.
 */
export async function runInstances(options: RunOptions): Promise<RunReport> {
  options.signal.throwIfAborted();
  throw new SandboxError("unsupported", `Cannot run ${options.runId}: there is no session yet`);
}
