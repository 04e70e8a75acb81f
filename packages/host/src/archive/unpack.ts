import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { chmod, copyFile, link, lstat, mkdir, open, readlink, rename, rm, symlink, utimes } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { ByteReader, cutOff } from "./byte-reader.ts";
import { blockBytes, decodeHeader, decodePax, readText, type Entry } from "./header.ts";

export interface UnpackOptions {
  signal: AbortSignal;
  /**
   * Called for each entry that is left out: pipes and devices, links that lead out of the directory, and hard links
   * without their file.
   */
  onSkipped: (path: string) => void;
  onBytes?: (bytes: number) => void;
  /**
   * The archive has one entry at its top, as `docker cp` makes them. That entry, a file or a directory, is stored as
   * the path, whatever its name is. Anything else is left out.
   */
  hasTop?: boolean;
}

/** A header that describes the next entry is small; a larger one is an attack on our memory. */
const largestExtraBytes = 1024 * 1024;

/**
 * Unpacks an untrusted archive into a directory, and writes nothing outside of it: names that lead out are refused, no
 * link in a path is followed, and a link that would lead out is left out. Every entry that is left out is reported.
 * Set-user-id bits are dropped.
 */
export async function unpack(
  archive: AsyncIterable<Uint8Array>,
  directory: string,
  options: UnpackOptions,
): Promise<{ files: number; bytes: number }> {
  const reader = new ByteReader(archive);
  const total = { files: 0, bytes: 0 };
  /**
   * Times and modes of directories are set last: files written later would change the times, and a mode could forbid
   * them.
   */
  const directories: Entry[] = [];
  try {
    const { hasTop = false } = options;
    await mkdir(hasTop ? dirname(directory) : directory, { recursive: true });
    let top: string | undefined;
    for await (const found of readEntries(reader, options.onSkipped)) {
      options.signal.throwIfAborted();
      top ??= hasTop ? found.path : "";
      const entry = below(top, found);
      if (hasTop && entry.path === "" && entry.type !== "file" && entry.type !== "directory") {
        options.onSkipped("");
        continue;
      }
      if (!(await place(entry, reader, directory, options))) continue;
      if (entry.type === "directory") directories.push(entry);
      if (entry.type === "file") total.bytes += entry.sizeBytes;
      if (entry.path !== "" && entry.path !== ".") total.files += 1;
    }
    for (const entry of directories.toReversed()) {
      const path = join(directory, entry.path);
      await chmod(path, entry.mode & 0o777);
      await utimes(path, entry.modifiedAtMs / 1_000, entry.modifiedAtMs / 1_000);
    }
  } finally {
    await reader.close();
  }
  return total;
}

/** Returns the entry as it is relative to the topmost one. */
function below(top: string, entry: Entry): Entry {
  if (top === "") return entry;
  const path = relative(top, entry.path);
  if (entry.type !== "hard-link") return { ...entry, path };
  return { ...entry, path, target: relative(top, safePath(entry.target ?? "")) };
}

function relative(top: string, path: string): string {
  if (path === top) return "";
  if (path.startsWith(`${top}/`)) return path.slice(top.length + 1);
  throw new SandboxError("invalid_argument", `Cannot unpack ${JSON.stringify(path)}: it is not below ${top}`, {
    suggestion: "Pack one file or one directory.",
  });
}

/** Yields the entries one by one; the body of a file has to be read before the next entry. */
async function* readEntries(
  reader: ByteReader,
  onSkipped: (path: string) => void,
): AsyncGenerator<Entry, void, undefined> {
  let extra = new Map<string, string>();
  for (;;) {
    const block = await reader.take(blockBytes);
    if (block === undefined) throw cutOff();
    if (block.every((byte) => byte === 0)) return;
    const header = decodeHeader(block);
    const { typeFlag } = header;
    if (["x", "g", "L", "K"].includes(typeFlag)) {
      const body = await readExtra(reader, header.sizeBytes);
      if (typeFlag === "x") extra = new Map([...extra, ...decodePax(body)]);
      if (typeFlag === "L") extra.set("path", readText(body));
      if (typeFlag === "K") extra.set("linkpath", readText(body));
      continue;
    }
    const path = extra.get("path") ?? header.path;
    const shared = {
      path: safePath(path),
      mode: header.mode,
      modifiedAtMs: extra.has("mtime") ? Number(extra.get("mtime")) * 1_000 : header.modifiedAtMs,
      sizeBytes: extra.has("size") ? Number(extra.get("size")) : header.sizeBytes,
    };
    if (!Number.isSafeInteger(shared.sizeBytes) || shared.sizeBytes < 0 || !Number.isFinite(shared.modifiedAtMs)) {
      throw new Error("the archive is damaged: an entry has no sensible size or time");
    }
    const target = extra.get("linkpath") ?? header.target;
    extra = new Map();
    if (typeFlag === "5" || (typeFlag !== "2" && path.endsWith("/"))) yield { ...shared, type: "directory" };
    else if (typeFlag === "2") yield { ...shared, type: "link", target };
    else if (typeFlag === "0" || typeFlag === "\0" || typeFlag === "7") yield { ...shared, type: "file" };
    else if (typeFlag === "1") yield { ...shared, type: "hard-link", target };
    else {
      onSkipped(shared.path);
      await skip(reader, shared.sizeBytes);
    }
  }
}

async function readExtra(reader: ByteReader, bytes: number): Promise<Buffer> {
  if (bytes > largestExtraBytes) throw new Error("the archive is damaged: a name is too long");
  const body = await reader.take(bytes);
  if (body === undefined && bytes > 0) throw cutOff();
  await skip(reader, 0, bytes);
  return body ?? Buffer.alloc(0);
}

/** Skips a body and the padding behind it. */
async function skip(reader: ByteReader, bytes: number, already = 0): Promise<void> {
  const gap = (blockBytes - ((bytes + already) % blockBytes)) % blockBytes;
  let got = 0;
  for await (const piece of reader.pieces(bytes + gap)) got += piece.length;
  if (got < bytes + gap) throw cutOff();
}

function safePath(path: string): string {
  const clean = posix.normalize(path).replace(/\/+$/, "");
  if (posix.isAbsolute(clean) || clean === ".." || clean.startsWith("../") || clean.includes("\0")) {
    throw new SandboxError(
      "permission_denied",
      `Cannot unpack ${JSON.stringify(path)}: it leads out of the directory`,
      {
        suggestion: "The archive was made to attack this machine: examine the sandbox that it came from.",
      },
    );
  }
  return clean;
}

/** Writes an entry, and returns whether it exists now. */
async function place(entry: Entry, reader: ByteReader, directory: string, options: UnpackOptions): Promise<boolean> {
  const path = join(directory, entry.path);
  await makeParents(directory, entry.path);
  switch (entry.type) {
    case "directory":
      await makeRealDirectory(path);
      return true;
    case "link":
      if (!staysInside(entry)) {
        options.onSkipped(`${entry.path} -> ${entry.target}`);
        return false;
      }
      await rm(path, { force: true });
      await symlink(entry.target ?? "", path);
      return true;
    case "hard-link":
      return placeHardLink(entry, reader, directory, options);
    case "file":
      await placeFile(entry, path, reader, options);
      return true;
  }
}

async function placeHardLink(
  entry: Entry,
  reader: ByteReader,
  directory: string,
  options: UnpackOptions,
): Promise<boolean> {
  const first = safePath(entry.target ?? "");
  const source = join(directory, first);
  const path = join(directory, entry.path);
  const stats = (await hasRealParents(directory, first)) ? await lstat(source).catch(() => undefined) : undefined;
  // A copy of a link elsewhere has another target, so it is checked like a link.
  if (stats?.isSymbolicLink() === true) {
    return place({ ...entry, type: "link", target: await readlink(source) }, reader, directory, options);
  }
  if (stats?.isFile() !== true) {
    options.onSkipped(`${entry.path} -> ${entry.target}`);
    return false;
  }
  if (path === source) return true;
  await rm(path, { force: true });
  try {
    await link(source, path);
  } catch {
    // Not every filesystem has hard links. A copy also reports any other failure.
    await copyFile(source, path, constants.COPYFILE_EXCL);
    await utimes(path, stats.atime, stats.mtime);
  }
  return true;
}

/** Writes a file completely or not at all: an earlier file stays until then. */
async function placeFile(entry: Entry, path: string, reader: ByteReader, options: UnpackOptions): Promise<void> {
  const draft = join(dirname(path), `.atoll-${randomUUID()}`);
  try {
    await writeDraft(entry, draft, reader, options);
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  await skip(reader, 0, entry.sizeBytes);
}

async function writeDraft(entry: Entry, draft: string, reader: ByteReader, options: UnpackOptions): Promise<void> {
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
  const file = await open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    let got = 0;
    for await (const piece of reader.pieces(entry.sizeBytes)) {
      options.signal.throwIfAborted();
      await file.writeFile(piece);
      options.onBytes?.(piece.length);
      got += piece.length;
    }
    if (got < entry.sizeBytes) throw cutOff();
    await file.chmod(entry.mode & 0o777);
    await file.utimes(entry.modifiedAtMs / 1_000, entry.modifiedAtMs / 1_000);
  } finally {
    await file.close();
  }
}

/** Makes the parent directories, and throws if one of them is a link. */
async function makeParents(directory: string, path: string): Promise<void> {
  const parts = path.split("/").slice(0, -1);
  for (let depth = 1; depth <= parts.length; depth += 1) {
    await makeRealDirectory(join(directory, ...parts.slice(0, depth)));
  }
}

async function hasRealParents(directory: string, path: string): Promise<boolean> {
  const parts = path.split("/").slice(0, -1);
  for (let depth = 1; depth <= parts.length; depth += 1) {
    const stats = await lstat(join(directory, ...parts.slice(0, depth))).catch(() => undefined);
    if (stats?.isDirectory() !== true) return false;
  }
  return true;
}

async function makeRealDirectory(path: string): Promise<void> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats === undefined) await mkdir(path);
  else if (!stats.isDirectory()) throw new Error(`Cannot unpack into ${path}: it is not a directory`);
}

/**
 * Whether a link stays inside, also through other links: every link goes up only at its beginning, from a real
 * directory, and so never above the top.
 */
function staysInside({ path, target = "" }: Entry): boolean {
  if (posix.isAbsolute(target) || /(^|\/)(?!\.\.\/)[^/]+\/(.*\/)?\.\.(\/|$)/.test(target)) return false;
  const led = posix.normalize(posix.join(posix.dirname(path), target));
  return led !== ".." && !led.startsWith("../");
}
