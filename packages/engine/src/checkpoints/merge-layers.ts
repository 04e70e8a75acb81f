import { run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

const mergeTimeoutMs = 30 * 60_000;
/** The guest's binary exits with this code when the disk is full. */
const exitNoSpace = 4;

export interface MergeOrder {
  /** Directories, as overlayfs would mount them. */
  lower: string;
  upper: string;
  /** An empty directory. */
  target: string;
  /** An empty directory on the filesystem of the target; it is not needed after the merge. */
  links: string;
  /** The directories of all layers below the two, the topmost first. */
  below: readonly string[];
}

/**
 * Merges two directories into one that can take their place above those below. `mergerPath` is the guest's binary.
 * Rejects with `no_space` or `storage_failed`.
 */
export async function mergeLayers(mergerPath: string, order: MergeOrder, signal: AbortSignal): Promise<void> {
  const { lower, upper, target, links, below } = order;
  const words = ["merge", lower, upper, target, links, ...below];
  const { exitCode, stderr } = await run(mergerPath, words, { signal, timeoutMs: mergeTimeoutMs });
  if (exitCode === 0) return;
  const code = exitCode === exitNoSpace ? "no_space" : "storage_failed";
  throw new SandboxError(code, `Cannot make a layer: ${stderr.trim()}`);
}
