import { run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

const mergeTimeoutMs = 30 * 60_000;
/** As the guest's binary says it. */
const exitNoSpace = 4;

export interface MergeOrder {
  /** Directories, as overlayfs would mount them. */
  lower: string;
  upper: string;
  /** Empty before. */
  target: string;
  /** Empty, on the filesystem of the target; of use to nobody afterwards. */
  links: string;
  /** All that lies under the two, the topmost first. */
  below: readonly string[];
}

/**
 * One directory that is to those below it what two of them are together. `mergerPath`: the guest's binary. Rejects with
 * `no_space` or `storage_failed`.
 */
export async function mergeLayers(mergerPath: string, order: MergeOrder, signal: AbortSignal): Promise<void> {
  const { lower, upper, target, links, below } = order;
  const words = ["merge", lower, upper, target, links, ...below];
  const { exitCode, stderr } = await run(mergerPath, words, { signal, timeoutMs: mergeTimeoutMs });
  if (exitCode === 0) return;
  const code = exitCode === exitNoSpace ? "no_space" : "storage_failed";
  throw new SandboxError(code, `Cannot make a layer: ${stderr.trim()}`);
}
