import { ByteReader } from "./byte-reader.ts";
import { type Overrides, parsePaxRecords } from "./pax-records.ts";
import { blockBytes, decodeName, MalformedArchive, parseHeader, type TarHeader } from "./tar-header.ts";

interface Named {
  /** The path in the archive, which is not trusted. */
  path: string;
  mode: number;
  uid: number;
  gid: number;
  mtimeSeconds: number;
}

export type TarEntry = Named &
  (
    | { kind: "file"; size: number; content: AsyncIterable<Buffer> }
    | { kind: "directory" }
    | { kind: "link"; target: string }
    | { kind: "hard-link"; target: string }
    | { kind: "device" }
    | { kind: "fifo" }
  );

/** Extended headers have names and attributes; a longer one has something else. */
const longestExtension = 1024 * 1024;

/**
 * Yields the entries of a tar archive: POSIX (ustar, pax) and GNU forms. It is strict and throws `MalformedArchive` for
 * everything unusual: two readers that guess differently would see different files in the same archive. The content of
 * a file is read, or skipped, before the next entry is requested.
 */
export async function* readTar(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const reader = new ByteReader(chunks);
  try {
    yield* entriesOf(reader);
  } finally {
    await reader.close();
  }
}

async function* entriesOf(reader: ByteReader): AsyncGenerator<TarEntry> {
  let overrides: Overrides = {};
  for (;;) {
    const block = await reader.read(blockBytes);
    if (block.length < blockBytes) throw truncated();
    const header = parseHeader(block);
    if (header === undefined) return;
    const found = await readExtension(reader, header);
    if (found !== undefined) {
      overrides = { ...overrides, ...found };
      continue;
    }
    const content = new Content(reader, overrides.size ?? header.size);
    yield toEntry({ ...header, ...overrides }, content);
    await content.skip();
    overrides = {};
  }
}

/** Returns what a header says about the entry that follows; undefined when it is an entry of its own. */
async function readExtension(reader: ByteReader, { type, size }: TarHeader): Promise<Overrides | undefined> {
  if (!"xgLKV".includes(type)) return undefined;
  if (size > longestExtension) throw new MalformedArchive("an extended header is too long");
  const bytes = await new Content(reader, size).whole();
  switch (type) {
    case "x":
      return parsePaxRecords(bytes);
    case "L":
      return { path: decodeName(untilNul(bytes)) };
    case "K":
      return { linkPath: decodeName(untilNul(bytes)) };
    default:
      // This is a comment on the whole archive, or its label.
      return {};
  }
}

function untilNul(bytes: Buffer): Buffer {
  const end = bytes.indexOf(0);
  return end < 0 ? bytes : bytes.subarray(0, end);
}

function toEntry(header: TarHeader, content: Content): TarEntry {
  const { type, path, linkPath, mode, uid, gid, mtimeSeconds } = header;
  const named = { path, mode, uid, gid, mtimeSeconds };
  if (type === "0" || type === "\0" || type === "7") {
    // Before POSIX there was no type for directories.
    if (!path.endsWith("/")) return { ...named, kind: "file", size: content.size, content };
    if (content.size === 0) return { ...named, kind: "directory" };
  }
  if (content.size > 0) throw new MalformedArchive(`${path} has content that its type cannot have`);
  switch (type) {
    case "1":
      return { ...named, kind: "hard-link", target: linkPath };
    case "2":
      return { ...named, kind: "link", target: linkPath };
    case "3":
    case "4":
      return { ...named, kind: "device" };
    case "5":
      return { ...named, kind: "directory" };
    case "6":
      return { ...named, kind: "fifo" };
    case "S":
      throw new MalformedArchive("it has sparse files in it, which are not supported");
    default:
      throw new MalformedArchive(`${path} is of the unknown type ${JSON.stringify(type)}`);
  }
}

/** The data behind a header, with the padding to the next block. */
class Content implements AsyncIterable<Buffer> {
  readonly size: number;
  readonly #reader: ByteReader;
  #left: number;
  #padding: number;

  constructor(reader: ByteReader, size: number) {
    this.#reader = reader;
    this.size = size;
    this.#left = size;
    this.#padding = (blockBytes - (size % blockBytes)) % blockBytes;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    for await (const piece of this.#reader.stream(this.#left)) {
      this.#left -= piece.length;
      yield piece;
    }
    if (this.#left > 0) throw truncated();
  }

  async whole(): Promise<Buffer> {
    const bytes = await this.#reader.read(this.size);
    if (bytes.length < this.size) throw truncated();
    this.#left = 0;
    await this.skip();
    return bytes;
  }

  /** Skips everything up to the next header. */
  async skip(): Promise<void> {
    const bytes = this.#left + this.#padding;
    let skipped = 0;
    for await (const piece of this.#reader.stream(bytes)) skipped += piece.length;
    if (skipped < bytes) throw truncated();
    this.#left = 0;
    this.#padding = 0;
  }
}

function truncated(): MalformedArchive {
  return new MalformedArchive("it ends too early");
}
