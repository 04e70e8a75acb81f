import { chmod, mkdir, mkdtemp, readdir, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";

/** The disk space that transfers leave free, because sandboxes write to the same disk. */
const spareBytes = 256 * 1024 * 1024;

/** A directory for one transfer. Disposing of it removes it with its content. */
export interface ScratchSpace extends AsyncDisposable {
  readonly path: string;
}

/**
 * The directory for parts of checkpoints during transfers. Only one server uses it: its content at the start was left
 * by an earlier server that crashed.
 */
export class CheckpointScratch {
  readonly #dir: string;
  /** The bytes that were promised to transfers in progress, and may not be written yet. */
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

  /**
   * Reserves a directory. Rejects with `no_space` when so many bytes do not fit beside what other transfers were
   * promised.
   */
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

  /** Checks the free space. Bytes that are written already count twice, so that this errs on the safe side. */
  async #assertDiskSpace(bytes: number): Promise<void> {
    const { bavail, bsize } = await statfs(this.#dir);
    const freeBytes = bavail * bsize;
    if (this.#promisedBytes + spareBytes <= freeBytes) return;
    throw new SandboxError("no_space", `Cannot transfer a checkpoint: ${bytes} bytes do not fit on the server's disk`, {
      suggestion: "Free space on the disk of the data directory.",
      details: { neededBytes: bytes, freeBytes, promisedBytes: this.#promisedBytes - bytes, spareBytes },
    });
  }
}
