import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Cleanup, hasErrno, run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

/** Names of directories that are not finished begin like this; no template can be named so. */
export const unfinishedPrefix = ".new-";

const syncTimeoutMs = 120_000;

/**
 * Makes a directory that exists completely or not at all, also after a crash of the machine: built beside its place,
 * written through to the disk, then renamed. False when somebody else was faster: what is there then is theirs.
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
