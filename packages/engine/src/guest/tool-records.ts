import { MalformedPayload, PayloadReader } from "./wire.ts";

type FileType = "file" | "directory" | "link" | "fifo" | "socket" | "character device" | "block device";

/** A file as `stat` and `list` return it. */
export interface FileEntry {
  /** The name, relative to the requested path; the path itself for `stat`. */
  name: string;
  type: FileType;
  /** Permission bits. */
  mode: number;
  uid: number;
  gid: number;
  links: number;
  sizeBytes: number;
  inode: bigint;
  modifiedAtMs: number;
  /** The target of a link, as it is written in the link. */
  target?: string;
}

const eventKinds = {
  1: "created",
  2: "written",
  3: "attributes",
  4: "removed",
  5: "moved_away",
  6: "moved_here",
  7: "lost",
  8: "watching",
  9: "gone",
} as const;

/**
 * A change under a watched path. `lost`: more happened than could be reported, so read the directory again. `watching`:
 * changes are reported from now on. `gone`: the watched path itself was removed.
 */
export interface WatchEvent {
  /** Counts from 1 within one watch. */
  cursor: number;
  kind: (typeof eventKinds)[keyof typeof eventKinds];
  isDirectory: boolean;
  /** The same number in `moved_away` and `moved_here` of one move; 0 otherwise. */
  cookie: number;
  path: string;
}

const fileTypes: Record<string, FileType> = {
  f: "file",
  d: "directory",
  l: "link",
  p: "fifo",
  s: "socket",
  c: "character device",
  b: "block device",
};

const maxPathBytes = 8192;
/** No entry or event is nearly as large. */
const maxRecordBytes = 3 * maxPathBytes;

/** The tool ended in the middle of a record; its exit may say why. */
export class RecordCutOff extends MalformedPayload {}

/** Splits the output of a tool, which runs inside and is not trusted, into records. Keeps at most one of them. */
export async function* readRecords(chunks: AsyncIterable<{ data: Buffer }>): AsyncGenerator<Buffer, void, void> {
  let buffered: Buffer = Buffer.alloc(0);
  for await (const { data } of chunks) {
    buffered = buffered.byteLength === 0 ? data : Buffer.concat([buffered, data]);
    while (buffered.byteLength >= 4) {
      const length = buffered.readUInt32LE(0);
      if (length > maxRecordBytes) throw new MalformedPayload(`Record of ${length} bytes`);
      if (buffered.byteLength < 4 + length) break;
      const record = buffered.subarray(4, 4 + length);
      buffered = buffered.subarray(4 + length);
      yield record;
    }
  }
  if (buffered.byteLength > 0) throw new RecordCutOff("The last record is cut off");
}

export function parseEntry(record: Buffer): FileEntry {
  const reader = new PayloadReader(record);
  const letter = String.fromCharCode(reader.u8());
  const type = fileTypes[letter];
  if (type === undefined) throw new MalformedPayload(`Unknown file type ${letter}`);
  const entry = {
    type,
    mode: reader.u32() & 0o7777,
    uid: reader.u32(),
    gid: reader.u32(),
    links: reader.u32(),
    sizeBytes: reader.u64(),
    inode: reader.bigU64(),
    modifiedAtMs: Number(BigInt.asIntN(64, reader.bigU64()) / 1_000_000n),
    name: reader.str(maxPathBytes),
  };
  const target = reader.str(maxPathBytes);
  reader.end();
  return type === "link" ? { ...entry, target } : entry;
}

export function parseEvent(record: Buffer): WatchEvent {
  const reader = new PayloadReader(record);
  const cursor = reader.u64();
  const kind = eventKinds[reader.u8() as keyof typeof eventKinds];
  if (kind === undefined) throw new MalformedPayload("Unknown kind of event");
  const event = { cursor, kind, isDirectory: reader.u8() === 1, cookie: reader.u32(), path: reader.str(maxPathBytes) };
  reader.end();
  return event;
}
