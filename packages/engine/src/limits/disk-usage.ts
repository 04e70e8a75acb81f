import { constants, type Stats } from "node:fs";
import { type FileHandle, lstat, open, opendir } from "node:fs/promises";
import { hasErrno } from "@atoll/host";

/**
 * The number of directories that are read at one time. Node has four threads for file calls; a few more directories
 * keep those busy.
 */
const concurrency = 8;

/** The entries of one directory that are measured together, which are the most that are in memory. */
const chunkSize = 256;

/**
 * The number of files with several names whose inode is remembered, so that they count once. Beyond it every further
 * name counts again: a tree that is made to use up our memory is measured as larger than it is, never as smaller.
 */
const mostLinkedFiles = 100_000;

/** A path is opened in parts no longer than this; the kernel takes 4096 bytes, and trees can be deeper. */
const longestPart = 2_000;

/**
 * Names may be any bytes, and a name that is not UTF-8 would not be found again under its decoded string. One character
 * per byte loses nothing and takes no more memory than the bytes do.
 */
const nameEncoding = "latin1";

interface Directory {
  /** The root has no parent, and its name is its path. */
  parent: Directory | undefined;
  name: string;
  inode: number;
}

/**
 * The minimum cost of an entry. An empty file has no blocks but takes an inode, of which a filesystem has about one for
 * each 16 KiB.
 */
export const leastEntryBytes = 4096;

export interface MeasureOptions {
  signal: AbortSignal;
  /**
   * The walk ends at this size, because the caller does not need more. That also ends the walk of a tree that grows as
   * fast as it is read.
   */
  enoughBytes?: number;
}

/**
 * Returns the bytes that a directory and everything in it on the same filesystem take on disk; 0 when it does not
 * exist. Processes that write in it at the same time are not trusted: links are never followed, not even one that
 * replaces a directory, and entries that disappear do not count. Entries are read as a stream, and only the names of
 * directories wait in memory.
 */
export async function measureTree(path: string, options: MeasureOptions): Promise<number> {
  return new TreeWalk(options).measure(path);
}

class TreeWalk {
  readonly #signal: AbortSignal;
  readonly #waiting: Directory[] = [];
  readonly #linkedFiles = new Set<number>();
  #device = 0;
  readonly #enoughBytes: number;
  #bytes = 0;

  constructor({ signal, enoughBytes = Infinity }: MeasureOptions) {
    this.#signal = signal;
    this.#enoughBytes = enoughBytes;
  }

  async measure(path: string): Promise<number> {
    this.#signal.throwIfAborted();
    const name = Buffer.from(path).toString(nameEncoding);
    const stats = await statsOf(name);
    if (stats === undefined) return 0;
    this.#device = stats.dev;
    this.#add({ parent: undefined, name, inode: stats.ino }, stats);
    while (this.#waiting.length > 0 && !this.#isEnough) {
      // The last ones come first: depth before breadth keeps the list short.
      const next = this.#waiting.splice(-concurrency);
      await Promise.all(next.map((directory) => this.#measureEntries(directory)));
    }
    return this.#bytes;
  }

  async #measureEntries(directory: Directory): Promise<void> {
    const handle = await openDirectory(directory);
    if (handle === undefined) return;
    try {
      // Names below this path are looked up in the very directory that was opened.
      const path = `/proc/self/fd/${handle.fd}`;
      let names: string[] = [];
      for await (const { name } of await opendir(path, { bufferSize: chunkSize, encoding: nameEncoding })) {
        names.push(name);
        if (names.length < chunkSize) continue;
        await this.#addAll(directory, path, names);
        if (this.#isEnough) return;
        names = [];
      }
      await this.#addAll(directory, path, names);
    } finally {
      await handle.close();
    }
  }

  async #addAll(parent: Directory, path: string, names: string[]): Promise<void> {
    this.#signal.throwIfAborted();
    await Promise.all(
      names.map(async (name) => {
        const stats = await statsOf(`${path}/${name}`);
        if (stats?.dev === this.#device) this.#add({ parent, name, inode: stats.ino }, stats);
      }),
    );
  }

  #add(entry: Directory, stats: Stats): void {
    if (stats.isDirectory()) this.#waiting.push(entry);
    else if (stats.nlink > 1 && this.#isKnown(stats.ino)) return;
    // The unit of st_blocks is 512 bytes, whatever the filesystem's own is.
    this.#bytes += Math.max(stats.blocks * 512, leastEntryBytes);
  }

  get #isEnough(): boolean {
    return this.#bytes > this.#enoughBytes;
  }

  #isKnown(inode: number): boolean {
    if (this.#linkedFiles.has(inode)) return true;
    if (this.#linkedFiles.size < mostLinkedFiles) this.#linkedFiles.add(inode);
    return false;
  }
}

const hasDisappeared = (error: unknown): boolean => hasErrno(error, "ENOENT", "ENOTDIR", "ELOOP", "ESTALE");

async function statsOf(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(Buffer.from(path, nameEncoding));
  } catch (error) {
    if (hasDisappeared(error)) return undefined;
    throw error;
  }
}

/**
 * Returns undefined when the path does not lead to the same directory any more: a link in it leads elsewhere, or the
 * directory is gone.
 */
async function openDirectory(directory: Directory): Promise<FileHandle | undefined> {
  let handle: FileHandle | undefined;
  try {
    for (const part of partsOf(directory)) {
      const base: FileHandle | undefined = handle;
      const path = base === undefined ? part : `/proc/self/fd/${base.fd}/${part}`;
      handle = await open(
        Buffer.from(path, nameEncoding),
        constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW,
      );
      await base?.close();
    }
    if (handle !== undefined && (await handle.stat()).ino === directory.inode) return handle;
  } catch (error) {
    if (!hasDisappeared(error)) throw error;
  }
  await handle?.close();
  return undefined;
}

function partsOf(directory: Directory): string[] {
  const names: string[] = [];
  for (let at: Directory | undefined = directory; at !== undefined; at = at.parent) names.unshift(at.name);
  const parts: string[] = [];
  let part = "";
  for (const name of names) {
    if (part !== "" && part.length + name.length > longestPart) {
      parts.push(part);
      part = "";
    }
    part = part === "" ? name : `${part}/${name}`;
  }
  return [...parts, part];
}
