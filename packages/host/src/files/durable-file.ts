import { open, rename } from "node:fs/promises";
import { dirname } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { run } from "../process/run.ts";

const syncTimeoutMs = 10 * 60_000;

/** Replaces a file so that after a crash at any moment, also of the machine, it has the old content or the new one. */
export async function writeDurably(path: string, content: string): Promise<void> {
  const temporary = `${path}.new`;
  const file = await open(temporary, "w", 0o600);
  try {
    await file.writeFile(content);
    await file.datasync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  await syncDirectory(dirname(path));
}

/** Makes everything that was written to the filesystem of this directory survive a crash of the machine. */
export async function syncFilesystem(path: string, signal: AbortSignal): Promise<void> {
  const { exitCode, stderr } = await run("sync", ["--file-system", path], { signal, timeoutMs: syncTimeoutMs });
  if (exitCode !== 0) throw new SandboxError("storage_failed", `Cannot make files durable: ${stderr.trim()}`);
}

/** Makes the names in this directory survive a crash of the machine. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
