import { createHash, type Hash } from "node:crypto";
import { readdir } from "node:fs/promises";
import { SandboxError } from "@atoll/protocol";
import { startHostProcess } from "../process/host-process.ts";

/** Reading and hashing a large layer takes a while. */
const sealTimeoutMs = 30 * 60_000;
const stderrBytes = 4096;

/** The same files give the same bytes, whenever and wherever they are read. */
const archiveOptions = [
  "--format=posix",
  "--pax-option=delete=atime,delete=ctime",
  "--sort=name",
  "--numeric-owner",
  "--sparse",
  "--xattrs",
  "--xattrs-include=*",
  "--warning=no-file-ignored",
];

export interface Seal {
  sizeBytes: number;
  sha256: string;
}

/**
 * Size and digest of a layer as an archive: names, owners, modes, times, extended attributes, links and contents of the upper directory of each of its
 * trees.
 */
export async function digestLayer(dir: string, signal: AbortSignal): Promise<Seal> {
  const hash = createHash("sha256");
  const sizeBytes = await hashOutput("tar", [...archiveOptions, "-cf", "-", ...(await uppers(dir))], dir, hash, signal);
  return { sizeBytes, sha256: hash.digest("hex") };
}

/**
 * Tells quickly whether anything in a layer was touched since the last time: the kernel sets the time of change of a file whenever its contents, attributes or
 * names change, and offers no way to set it back. Means something only on the machine where it was taken.
 */
export async function stampLayer(dir: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  const format = String.raw`%p\0%y %m %U %G %s %T@ %C@ %i %l\0`;
  await hashOutput("find", [...(await uppers(dir)), "-printf", format], dir, hash, signal);
  return hash.digest("hex");
}

/** Relative, in order. What else overlayfs keeps beside them is its own. */
async function uppers(dir: string): Promise<string[]> {
  const trees = await readdir(dir);
  return trees.toSorted((a, b) => Number(a) - Number(b)).map((tree) => `./${tree}/upper`);
}

async function hashOutput(file: string, args: string[], cwd: string, hash: Hash, signal: AbortSignal): Promise<number> {
  const child = await startHostProcess(file, args, { signal, cwd, timeoutMs: sealTimeoutMs });
  let bytes = 0;
  let stderr = "";
  for await (const { stream, data } of child) {
    if (stream === "stdout") {
      hash.update(data);
      bytes += data.byteLength;
    } else if (stderr.length < stderrBytes) stderr += data.toString("utf8");
  }
  const { exitCode } = await child.wait();
  signal.throwIfAborted();
  if (exitCode === 0) return bytes;
  throw new SandboxError("storage_failed", `Cannot read a layer: ${file} ended with ${exitCode}: ${stderr.trim()}`, {
    details: { file, exitCode, stderr },
  });
}
