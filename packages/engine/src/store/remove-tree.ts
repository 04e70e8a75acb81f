import { rm } from "node:fs/promises";
import { hasErrno, run } from "@atoll/host";
import { deadlineAfter, SandboxError } from "@atoll/protocol";

const deadlineMs = 10 * 60_000;

/**
 * Removes a directory tree. Node removes by whole paths, which cannot be longer than the kernel takes; a sandbox can
 * nest directories deeper than that, so `rm` removes those. Idempotent.
 */
export async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    if (!hasErrno(error, "ENAMETOOLONG")) throw error;
    const signal = deadlineAfter(deadlineMs);
    const { exitCode, stderr } = await run("rm", ["-rf", "--", path], { signal, timeoutMs: deadlineMs });
    if (exitCode !== 0)
      throw new SandboxError("internal", `Cannot remove ${path}`, { cause: error, details: { stderr } });
  }
}
