import { createHash } from "node:crypto";
import { chmod, chown, lchown, mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";

interface Owned {
  mode: number;
  uid: number;
  gid: number;
}

/** One entry in a tree that we write ourselves. `path` is relative to the tree. */
export type SkeletonEntry =
  | ({ kind: "directory"; path: string } & Owned)
  | ({ kind: "file"; path: string; content: Uint8Array | string } & Owned)
  | { kind: "link"; path: string; target: string }
  /** Hides the file of a lower layer at this path. To overlayfs, a whiteout is a character device 0/0. */
  | { kind: "whiteout"; path: string };

const mknodTimeoutMs = 10_000;

/** Returns the same text for the same tree; trees are named by it. */
export function fingerprint(entries: readonly SkeletonEntry[]): string {
  const hash = createHash("sha256");
  for (const entry of entries) {
    const { kind, path } = entry;
    const content = kind === "file" ? createHash("sha256").update(entry.content).digest("hex") : "";
    const owner = kind === "directory" || kind === "file" ? [entry.mode, entry.uid, entry.gid] : [];
    hash.update(JSON.stringify([kind, path, ...owner, content, kind === "link" ? entry.target : ""]));
  }
  return hash.digest("hex");
}

/** Writes the entries below `root`, which exists and is empty. A directory comes before its contents. */
export async function writeSkeleton(
  root: string,
  entries: readonly SkeletonEntry[],
  signal: AbortSignal,
): Promise<void> {
  for (const entry of entries) {
    signal.throwIfAborted();
    await writeEntry(join(root, entry.path), entry, signal);
  }
}

async function writeEntry(path: string, entry: SkeletonEntry, signal: AbortSignal): Promise<void> {
  switch (entry.kind) {
    case "directory":
      if (entry.path !== "") await mkdir(path);
      break;
    case "file":
      await writeFile(path, entry.content, { flag: "wx" });
      break;
    case "link":
      await symlink(entry.target, path);
      return lchown(path, 0, 0);
    case "whiteout":
      return makeWhiteout(path, signal);
  }
  // The order matters: a change of owner clears setuid and setgid, and our umask applies to the mode of a new file.
  await chown(path, entry.uid, entry.gid);
  await chmod(path, entry.mode);
}

async function makeWhiteout(path: string, signal: AbortSignal): Promise<void> {
  const { exitCode, stderr } = await run("mknod", [path, "c", "0", "0"], { signal, timeoutMs: mknodTimeoutMs });
  if (exitCode === 0) return;
  throw new SandboxError("unsupported", `Cannot hide a file from sandboxes: ${stderr.trim()}`, {
    suggestion: "Run the engine as root, with its data directory on a filesystem that can hold device nodes.",
    details: { path },
  });
}
