import { createHash } from "node:crypto";
import { access, chmod, copyFile, mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { guestInside } from "./gvisor/oci-spec.ts";

/**
 * Makes the read-only layer with the guest in it, once per guest: sandboxes that were started with an older guest keep
 * theirs. Resolves to its directory.
 */
export async function installGuest(guestPath: string, guestsDir: string): Promise<string> {
  const binary = await readFile(guestPath).catch((cause: unknown) => {
    throw new SandboxError("unsupported", `Cannot run sandboxes: there is no guest at ${guestPath}`, {
      suggestion: "Run `npm run setup`, which builds it.",
      cause,
    });
  });
  const layer = join(guestsDir, createHash("sha256").update(binary).digest("hex").slice(0, 24));
  if (await exists(join(layer, guestInside))) return layer;
  await mkdir(guestsDir, { recursive: true, mode: 0o755 });
  const draft = await mkdtemp(join(guestsDir, ".new-"));
  try {
    await chmod(draft, 0o755);
    await mkdir(join(draft, dirname(guestInside)), { mode: 0o755 });
    await copyFile(guestPath, join(draft, guestInside));
    await chmod(join(draft, guestInside), 0o755);
    await rename(draft, layer);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    // Another engine of the same user was faster.
    if (!hasErrno(error, "ENOTEMPTY", "EEXIST")) throw error;
  }
  return layer;
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
