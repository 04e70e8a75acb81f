import { chmod, mkdir, mkdtemp, readdir, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";

/** Sandboxes write to the same disk: transfers leave them this much. */
const spareBytes = 256 * 1024 * 1024;

/** A directory for one transfer. It goes, with all that is in it, when it is disposed of. */
export interface ScratchSpace extends AsyncDisposable {
  readonly path: string;
}

/**
 * Where parts of checkpoints lie while they are on their way. One server has it for itself: whatever is there at its
 * start was left by one that died.
 */
export class CheckpointScratch {
  readonly #dir: string;
  /** What was promised to transfers that are under way and perhaps not written yet. */
  #promisedBytes = 0;

  private constructor(dir: string) {
    this.#dir = dir;
  }

  static async open(dir: string): Promise<CheckpointScratch> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    await chmod(dir, 0o700);
    for (const name of await readdir(dir)) await rm(join(dir, name), { recursive: true, force: true });
    return new CheckpointScratch(dir);
  }

  /** Rejects with `no_space` when so many bytes do not fit beside what others were promised. */
  async take(bytes: number): Promise<ScratchSpace> {
    this.#promisedBytes += bytes;
    try {
      await this.#assertDiskSpace(bytes);
      const path = await mkdtemp(join(this.#dir, "transfer-"));
      return {
        path,
        [Symbol.asyncDispose]: async () => {
          this.#promisedBytes -= bytes;
          await rm(path, { recursive: true, force: true });
        },
      };
    } catch (error) {
      this.#promisedBytes -= bytes;
      throw error;
    }
  }

  /** What has been written already counts twice, so that this errs towards too little room. */
  async #assertDiskSpace(bytes: number): Promise<void> {
    const { bavail, bsize } = await statfs(this.#dir);
    const freeBytes = bavail * bsize;
    if (this.#promisedBytes + spareBytes <= freeBytes) return;
    throw new SandboxError("no_space", `Cannot transfer a checkpoint: ${bytes} bytes do not fit on the server's disk`, {
      suggestion: "Make room on the disk of the data directory.",
      details: { neededBytes: bytes, freeBytes, promisedBytes: this.#promisedBytes - bytes, spareBytes },
    });
  }
}
