import type { Sandbox } from "@atoll/engine";

const argv = ["/bin/bash", "-c", "true"];
const timeoutMs = 10_000;

/**
 * Runs a program that does nothing, so that the first command of the client that gets the sandbox finds the programs
 * and libraries that all need in its caches. A sandbox that cannot run it is as good as any other.
 */
export async function warmUp(sandbox: Sandbox, signal: AbortSignal): Promise<void> {
  try {
    const process = await sandbox.spawn({ argv, cwd: "/", timeoutMs }, { signal });
    process.discardOutput();
    await process.wait();
  } catch {
    // The sandbox has no such program, it has ended, or the pool was closed.
  }
}
