import { constants } from "node:fs";
import { chmod, chown, lchown, link, lstat, mkdir, open, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { openArchive } from "./open-archive.ts";
import { readTar, type TarEntry } from "./read-tar.ts";
import { safePath } from "./safe-path.ts";
import { MalformedArchive } from "./tar-header.ts";

export interface ExtractOptions {
  signal: AbortSignal;
  /** The limit of all files together. */
  maxBytes: number;
  maxEntries: number;
}

const longestTarget = 4095;

/**
 * Sandboxes get their own filesystems here, so only files and directories of the archive are extracted below these
 * paths.
 */
const replaced = ["dev", "run"];

/**
 * Extracts a tar archive, compressed or not, into an empty directory that no other process writes to. The archive is
 * not trusted: every path stays below the directory, no link in it is followed, device nodes are refused, and size and
 * number are limited while it is read. Links may point anywhere; they are followed inside a sandbox only. Owners and
 * modes are kept, extended attributes are not.
 */
export async function extractArchive(archive: string, directory: string, options: ExtractOptions): Promise<void> {
  const extraction = new Extraction(directory, options);
  try {
    for await (const entry of readTar(openArchive(archive, options.signal))) {
      options.signal.throwIfAborted();
      await extraction.add(entry);
    }
  } catch (cause) {
    if (cause instanceof MalformedArchive) {
      throw new SandboxError("invalid_argument", `Cannot read the archive ${archive}: ${cause.message}`, {
        cause,
        suggestion:
          "It has to be a tar archive of a root filesystem, as it is or compressed with gzip, xz, zstd or bzip2.",
      });
    }
    if (hasErrno(cause, "ENOSPC", "EDQUOT")) {
      throw new SandboxError("no_space", `Cannot extract the archive ${archive}: the disk is full`, { cause });
    }
    if (hasErrno(cause, "EPERM")) {
      throw new SandboxError("permission_denied", `Cannot extract the archive ${archive} with its owners`, {
        cause,
        suggestion: "Run the engine as root.",
      });
    }
    throw cause;
  }
}

class Extraction {
  readonly #root: string;
  readonly #options: ExtractOptions;
  /** Paths that are known to be directories that we made, and not links. */
  readonly #directories = new Set([""]);
  #bytes = 0;
  #entries = 0;

  constructor(root: string, options: ExtractOptions) {
    this.#root = root;
    this.#options = options;
  }

  async add(entry: TarEntry): Promise<void> {
    this.#count(entry);
    const path = safePath(entry.path);
    if (path === "") {
      if (entry.kind === "directory") return;
      throw new MalformedArchive(`${JSON.stringify(entry.path)} is not the name of a file`);
    }
    if (entry.kind === "device" || entry.kind === "fifo") {
      if (replaced.includes(path.split("/")[0] ?? "")) return;
      throw new MalformedArchive(`${path} is a ${entry.kind}, which a template cannot have`);
    }
    await this.#makeParents(dirname(path));
    await this.#write(path, entry);
  }

  #count(entry: TarEntry): void {
    const { maxBytes, maxEntries } = this.#options;
    this.#entries += 1;
    if (entry.kind === "file") this.#bytes += entry.size;
    if (this.#entries > maxEntries) throw tooLarge(`it has more than ${maxEntries} entries`, "maxEntries");
    if (this.#bytes > maxBytes) throw tooLarge(`its files are larger than ${maxBytes} bytes together`, "maxBytes");
  }

  async #write(path: string, entry: Exclude<TarEntry, { kind: "device" | "fifo" }>): Promise<void> {
    const target = join(this.#root, path);
    if (entry.kind === "directory") return this.#writeDirectory(path, entry);
    await this.#clear(path);
    switch (entry.kind) {
      case "file":
        return writeFile(target, entry);
      case "link":
        assertTarget(path, entry.target);
        await symlink(entry.target, target);
        return lchown(target, entry.uid, entry.gid);
      case "hard-link":
        return link(await this.#linkSource(path, entry.target), target);
    }
  }

  async #writeDirectory(path: string, { mode, uid, gid }: TarEntry): Promise<void> {
    const target = join(this.#root, path);
    if (!this.#directories.has(path)) {
      await this.#clear(path);
      await mkdir(target);
      this.#directories.add(path);
    }
    await chown(target, uid, gid);
    await chmod(target, mode & 0o7777);
  }

  /** Removes an earlier entry of the same path, unless that is a directory. */
  async #clear(path: string): Promise<void> {
    if (this.#directories.has(path)) throw new MalformedArchive(`${path} is a directory and then something else`);
    await rm(join(this.#root, path), { force: true });
  }

  async #makeParents(path: string): Promise<void> {
    if (path === "." || this.#directories.has(path)) return;
    await this.#makeParents(dirname(path));
    try {
      await mkdir(join(this.#root, path));
    } catch (error) {
      if (!hasErrno(error, "EEXIST")) throw error;
      throw new MalformedArchive(`something is to be put below ${path}, which is not a directory`);
    }
    await chmod(join(this.#root, path), 0o755);
    this.#directories.add(path);
  }

  async #linkSource(path: string, target: string): Promise<string> {
    const source = safePath(target);
    const parent = dirname(source);
    const isInside = source !== "" && (parent === "." || this.#directories.has(parent));
    const found = join(this.#root, source);
    if (isInside && (await lstat(found).catch(() => undefined))?.isFile() === true) return found;
    throw new MalformedArchive(`${path} is a link to ${JSON.stringify(target)}, which is not a file of the archive`);
  }
}

async function writeFile(target: string, entry: Extract<TarEntry, { kind: "file" }>): Promise<void> {
  const file = await open(
    target,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    for await (const piece of entry.content) await file.writeFile(piece);
    await file.chown(entry.uid, entry.gid);
    // The mode comes after the owner, whose change clears setuid and setgid.
    await file.chmod(entry.mode & 0o7777);
    // Compiled Python is checked against the time of its source.
    await file.utimes(entry.mtimeSeconds, entry.mtimeSeconds);
  } finally {
    await file.close();
  }
}

function assertTarget(path: string, target: string): void {
  if (target === "" || target.includes("\0") || Buffer.byteLength(target) > longestTarget) {
    throw new MalformedArchive(`the link ${path} has an impossible target`);
  }
}

function tooLarge(reason: string, option: string): SandboxError {
  return new SandboxError("limit_reached", `Cannot extract the archive: ${reason}`, {
    suggestion: `Raise ${option} if the archive should be so large.`,
  });
}
