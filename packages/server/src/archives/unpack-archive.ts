import { MalformedArchive, readTar, safePath, type TarEntry } from "@atoll/engine";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { endOfArchive, entryHeader, padding, type PlainEntry } from "./tar-blocks.ts";
import { TarProcess, type ArchiveOptions, type ArchiveSandbox } from "./tar-process.ts";

export interface UnpackOptions extends ArchiveOptions {
  /** The limit for all files together. The default is the sandbox's disk limit. */
  maxBytes?: number;
  maxEntries?: number;
}

export interface Unpacked {
  /** The number of entries that are not directories. */
  files: number;
  bytes: number;
}

/** How many bytes may follow the end of an archive: tar fills up to a whole record. */
const longestRest = 1024 * 1024;

/**
 * Unpacks an uploaded archive into a directory of a sandbox, which is created if it is missing. The archive is read
 * here first, entry by entry, and no entry reaches the sandbox before it was found harmless: no absolute names, no
 * `..`, no devices, bounded in number and size. Then the sandbox's own tar unpacks it as the given user, with that user
 * as the owner.
 *
 * Unpacking is not all or nothing: an error says in `details` how many files were written before it, and which file is
 * incomplete.
 */
export async function unpackArchive(
  sandbox: ArchiveSandbox,
  path: string,
  archive: AsyncIterable<Uint8Array>,
  options: UnpackOptions = {},
): Promise<Unpacked> {
  await sandbox.files.mkdir(path, options);
  const tar = await TarProcess.start(sandbox, ["-C", path, "-xof", "-"], { ...options, stdin: true });
  const upload = new Upload(tar, {
    maxBytes: options.maxBytes ?? sandbox.record.limits.diskBytes,
    maxEntries: options.maxEntries ?? 1_000_000,
  });
  const listening = drain(tar.output());
  try {
    const source = new KeptOpen(archive);
    for await (const entry of readTar(source)) await upload.add(entry);
    await upload.end();
    await source.skipRest(longestRest);
  } catch (cause) {
    if (!(cause instanceof TarGone)) throw await upload.explain(cause, path);
  } finally {
    await listening;
  }
  await tar.finish(`unpack into ${path}`, upload.summary);
  return upload.unpacked;
}

/** Tar has stopped reading. The exit of tar says why. */
class TarGone extends Error {}

class Upload {
  /** The path of the entry that is being sent. */
  incomplete: string | undefined;
  readonly unpacked: Unpacked = { files: 0, bytes: 0 };
  readonly #tar: TarProcess;
  readonly #limits: { maxBytes: number; maxEntries: number };
  #entries = 0;

  constructor(tar: TarProcess, limits: { maxBytes: number; maxEntries: number }) {
    this.#tar = tar;
    this.#limits = limits;
  }

  get summary(): Record<string, unknown> {
    return { ...this.unpacked, ...(this.incomplete === undefined ? {} : { incomplete: this.incomplete }) };
  }

  async add(entry: TarEntry): Promise<void> {
    const path = safePath(entry.path);
    const plain = this.#check(entry, path);
    if (path === "") return;
    this.incomplete = path;
    await this.#send(entryHeader(plain, path));
    if (plain.kind === "file") {
      for await (const piece of plain.content) await this.#send(piece);
      await this.#send(padding(plain.size));
      this.unpacked.bytes += plain.size;
    }
    if (plain.kind !== "directory") this.unpacked.files += 1;
    this.incomplete = undefined;
  }

  async end(): Promise<void> {
    await this.#send(endOfArchive);
    await this.#tar.process.closeStdin();
  }

  /** Describes a failure. When this resolves, every entry that was sent whole is on the sandbox's disk. */
  async explain(cause: unknown, path: string): Promise<unknown> {
    // In the middle of a file, an end of input is all that tar can be given; tar stops there, with everything before it
    // written.
    await (this.incomplete === undefined ? this.end() : this.#tar.process.closeStdin()).catch(() => undefined);
    await this.#tar.process.wait().catch(() => undefined);
    const asked = `Cannot unpack into ${path}`;
    const { files } = this.unpacked;
    const suggestion = `${files} ${files === 1 ? "file was" : "files were"} written before; see details.`;
    if (cause instanceof MalformedArchive) {
      return new SandboxError("invalid_argument", `${asked}: ${cause.message}`, {
        cause,
        suggestion,
        details: this.summary,
      });
    }
    if (!isSandboxError(cause, "limit_reached")) return cause;
    return new SandboxError(cause.code, `${asked}: ${cause.message}`, { cause, suggestion, details: this.summary });
  }

  #check(entry: TarEntry, path: string): PlainEntry {
    const { maxBytes, maxEntries } = this.#limits;
    this.#entries += 1;
    if (this.#entries > maxEntries)
      throw new SandboxError("limit_reached", `the archive has more than ${maxEntries} entries`);
    if (entry.kind === "device" || entry.kind === "fifo") throw new MalformedArchive(`${path} is a ${entry.kind}`);
    if (path === "" && entry.kind !== "directory") throw new MalformedArchive("an entry has no name");
    if (entry.kind === "hard-link") return { ...entry, target: safePath(entry.target) };
    if (entry.kind === "link" && (entry.target === "" || entry.target.includes("\0"))) {
      throw new MalformedArchive(`the link ${path} has an impossible target`);
    }
    if (entry.kind === "file" && this.unpacked.bytes + entry.size > maxBytes) {
      throw new SandboxError("limit_reached", `the archive's files have more than ${maxBytes} bytes together`);
    }
    return entry;
  }

  async #send(bytes: Uint8Array): Promise<void> {
    try {
      await this.#tar.process.writeStdin(bytes);
    } catch (cause) {
      throw isSandboxError(cause, "invalid_state") ? new TarGone("Tar has gone", { cause }) : cause;
    }
  }
}

/** A source that stays open when a reader leaves: the rest of what a client sends has to be read before the reply. */
class KeptOpen implements AsyncIterable<Uint8Array> {
  readonly #iterator: AsyncIterator<Uint8Array>;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#iterator = source[Symbol.asyncIterator]();
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    return { next: () => this.#iterator.next() };
  }

  async skipRest(mostBytes: number): Promise<void> {
    for (let bytes = 0; bytes <= mostBytes;) {
      const { done, value } = await this.#iterator.next();
      if (done === true) return;
      bytes += value.byteLength;
    }
    throw new MalformedArchive("something follows its end");
  }
}

async function drain(output: AsyncIterable<unknown>): Promise<void> {
  try {
    for await (const _ of output);
  } catch {
    // The caller asks the process itself how it ended.
  }
}
