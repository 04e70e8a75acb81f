import { createHash, randomUUID } from "node:crypto";
import { lstat, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno, run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";

const byHand = "local";

/**
 * Finds files that not every user of the host may read, in a tree that sandboxes see. Root in a sandbox passes every
 * permission check of the files that it sees, so these files must be hidden.
 *
 * A scan of all of /usr takes seconds on a cold machine. So the result is cached, together with a stamp of what changes
 * when packages are installed or a directory is added near the top. `local`, where administrators add files by hand, is
 * scanned each time, so the stamp does not cover it.
 */
export async function findPrivateFiles(tree: string, cacheFile: string, signal: AbortSignal): Promise<string[]> {
  const stamp = await stampOf(tree);
  const kept = await readScan(cacheFile);
  const local = (await scan(join(tree, byHand), signal)).map((path) => join(byHand, path));
  if (kept?.stamp === stamp && kept.tree === tree) return [...kept.paths, ...local];
  const paths = (await scan(tree, signal)).filter((path) => !path.startsWith(`${byHand}/`));
  await writeScan(cacheFile, { version: 1, tree, stamp, paths });
  return [...paths, ...local];
}

const Scan = z.strictObject({
  version: z.literal(1),
  tree: z.string(),
  stamp: z.string(),
  paths: z.array(z.string()),
});
type Scan = z.infer<typeof Scan>;

const scanTimeoutMs = 300_000;
const mostOutputBytes = 16 * 1024 * 1024;

async function readScan(cacheFile: string): Promise<Scan | undefined> {
  try {
    return Scan.safeParse(JSON.parse(await readFile(cacheFile, "utf8"))).data;
  } catch (error) {
    if (hasErrno(error, "ENOENT") || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

async function writeScan(cacheFile: string, result: Scan): Promise<void> {
  const temporary = `${cacheFile}.${randomUUID()}`;
  await writeFile(temporary, JSON.stringify(result));
  await rename(temporary, cacheFile);
}

/** Returns paths relative to the tree. A private directory stands for everything in it. */
async function scan(tree: string, signal: AbortSignal): Promise<string[]> {
  const isPrivate = ["(", "!", "-type", "l", "!", "-perm", "-o=r", "-o", "-type", "d", "!", "-perm", "-o=x", ")"];
  const result = await run("find", [tree, "-xdev", ...isPrivate, "-printf", "%P\\0", "-prune"], {
    signal,
    timeoutMs: scanTimeoutMs,
    maxOutputBytes: mostOutputBytes,
  });
  if (result.exitCode !== 0 || result.truncated) {
    // A file that is removed during the scan also gives exit code 1, and this line.
    const complaints = result.stderr
      .split("\n")
      .filter((line) => line !== "" && !line.endsWith("No such file or directory"));
    if (result.truncated || complaints.length > 0) {
      throw new SandboxError("unsupported", `Cannot find out which files below ${tree} are private`, {
        suggestion: "Run the engine as root, or use a template of your own instead of the host's files.",
        details: { complaints: complaints.slice(0, 10), truncated: result.truncated },
      });
    }
  }
  return result.stdout.split("\0").filter((path) => path !== "");
}

/** The databases of the common package managers: each installation and removal changes one of these. */
const packageRecords = [
  "/var/lib/dpkg/status",
  "/var/lib/rpm/rpmdb.sqlite",
  "/lib/apk/db/installed",
  "/var/lib/pacman/local",
];

async function stampOf(tree: string): Promise<string> {
  const hash = createHash("sha256");
  const names = (await readdir(tree)).filter((name) => name !== byHand).toSorted();
  const below = await Promise.all(names.map((name) => namesIn(join(tree, name))));
  for (const path of [tree, ...names.map((name) => join(tree, name)), ...below.flat(), ...packageRecords]) {
    hash.update(`${path}\0${await describe(path)}\n`);
  }
  return hash.digest("hex");
}

async function namesIn(directory: string): Promise<string[]> {
  try {
    const entries = await readdir(directory, { withFileTypes: true });
    const directories = entries.filter((entry) => entry.isDirectory());
    return directories.map((entry) => join(directory, entry.name)).toSorted();
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR", "EACCES")) return [];
    throw error;
  }
}

async function describe(path: string): Promise<string> {
  try {
    const { ino, mode, ctimeNs } = await lstat(path, { bigint: true });
    return `${ino} ${mode} ${ctimeNs}`;
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR", "EACCES")) return "absent";
    throw error;
  }
}
