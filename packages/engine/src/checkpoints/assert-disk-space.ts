import { statfs } from "node:fs/promises";
import { SandboxError } from "@atoll/protocol";

/** For what is written beside the memory: the runtime's own state, manifest and record. */
const besideBytes = 4 * 1024 * 1024;

/**
 * Rejects with `no_space` unless an image of this much memory fits where the directory is. A runtime that finds the
 * disk full in the middle of an image takes the sandbox with it; so it is asked before.
 */
export async function assertDiskSpace(dir: string, memoryBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dir);
  const [freeBytes, neededBytes] = [bavail * bsize, memoryBytes + besideBytes];
  if (freeBytes >= neededBytes) return;
  throw new SandboxError(
    "no_space",
    `Cannot save the memory of a sandbox: it may take ${neededBytes} bytes, and ${freeBytes} are free`,
    {
      suggestion: "The sandbox runs on. Kill sandboxes that are not needed, remove checkpoints, or make room.",
      details: { freeBytes, neededBytes },
    },
  );
}
