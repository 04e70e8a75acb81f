import { statfs } from "node:fs/promises";
import { SandboxError } from "@atoll/protocol";

/** The space for the files beside the memory image: the runtime's own state, the manifest and the record. */
const besideBytes = 4 * 1024 * 1024;

/**
 * Rejects with `no_space` unless an image of this much memory fits on the disk of the directory. A runtime that runs
 * out of disk space while it writes an image kills the sandbox, so the space is checked first.
 */
export async function assertDiskSpace(dir: string, memoryBytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dir);
  const [freeBytes, neededBytes] = [bavail * bsize, memoryBytes + besideBytes];
  if (freeBytes >= neededBytes) return;
  throw new SandboxError(
    "no_space",
    `Cannot save the memory of a sandbox: it may take ${neededBytes} bytes, and ${freeBytes} are free`,
    {
      suggestion: "The sandbox still runs. Kill sandboxes that are not needed, remove checkpoints, or free disk space.",
      details: { freeBytes, neededBytes },
    },
  );
}
