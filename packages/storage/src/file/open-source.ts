import { constants, open, type FileHandle } from "node:fs/promises";
import { SandboxError } from "@atoll/protocol";

/**
 * Opens a file to be uploaded. Opening does not wait: a pipe without a writer is refused, like everything else that is
 * not a file.
 */
export async function openSource(path: string): Promise<{ file: FileHandle; sizeBytes: number }> {
  let file: FileHandle;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (error) {
    throw new SandboxError("invalid_argument", `Cannot upload ${path}: it cannot be opened`, { cause: error });
  }
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw new SandboxError("invalid_argument", `Cannot upload ${path}: it is not a file`);
    return { file, sizeBytes: stats.size };
  } catch (error) {
    await file.close();
    throw error;
  }
}
