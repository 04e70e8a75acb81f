import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Cleanup, hasErrno, run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

/** The names of unfinished directories begin with this prefix, which no template name can have. */
export const unfinishedPrefix = ".new-";

const syncTimeoutMs = 120_000;

/**
 * Makes a directory that exists completely or not at all, also after a crash of the machine: it is built beside its
 * place, written to the disk, then renamed. Returns false when another process was faster, and keeps that process's
 * directory.
 */
export async function publishDirectory(
  path: string,
  build: (directory: string) => Promise<void>,
  signal: AbortSignal,
): Promise<boolean> {
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  await using undo = new Cleanup();
  const directory = await mkdtemp(join(dirname(path), `${unfinishedPrefix}${basename(path)}-`));
  undo.defer(() => rm(directory, { recursive: true, force: true }));
  await build(directory);
  await writeThrough(directory, signal);
  try {
    await rename(directory, path);
  } catch (error) {
    if (hasErrno(error, "ENOTEMPTY", "EEXIST")) return false;
    throw error;
  }
  undo.release();
  return true;
}

async function writeThrough(directory: string, signal: AbortSignal): Promise<void> {
  const { exitCode, stderr } = await run("sync", ["-f", directory], { signal, timeoutMs: syncTimeoutMs });
  if (exitCode !== 0) throw new SandboxError("internal", `Cannot write ${directory} to the disk: ${stderr.trim()}`);
}
