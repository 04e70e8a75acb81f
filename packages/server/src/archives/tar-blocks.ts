import type { TarEntry } from "@atoll/engine";

const blockBytes = 512;
const longestName = 100;

/** An entry that the tar in a sandbox may receive. All other kinds are refused before. */
export type PlainEntry = Exclude<TarEntry, { kind: "device" | "fifo" }>;

const types = { file: "0", "hard-link": "1", link: "2", directory: "5" } as const;

/** A tar archive ends with two blocks of zeros. */
export const endOfArchive = Buffer.alloc(2 * blockBytes);

/**
 * Returns the header of an entry, written again from what the reader understood of the old one. So the tar inside sees
 * exactly what was checked here, and nothing that two programs could read in two ways. Long names have GNU's form,
 * which every tar knows. Owners are left out: the user who unpacks becomes the owner.
 */
export function entryHeader(entry: PlainEntry, path: string): Buffer {
  const target = entry.kind === "link" || entry.kind === "hard-link" ? entry.target : "";
  return Buffer.concat([
    ...longName("K", target),
    ...longName("L", path),
    header({
      path,
      target,
      type: types[entry.kind],
      size: entry.kind === "file" ? entry.size : 0,
      mode: entry.mode & 0o7777,
      mtimeSeconds: entry.mtimeSeconds,
    }),
  ]);
}

/** Returns the zeros that fill the last block of a content of this size. */
export function padding(size: number): Buffer {
  return Buffer.alloc((blockBytes - (size % blockBytes)) % blockBytes);
}

function longName(type: "K" | "L", name: string): Buffer[] {
  const bytes = Buffer.from(`${name}\0`);
  if (bytes.byteLength <= longestName) return [];
  const size = bytes.byteLength;
  return [header({ path: "././@LongLink", target: "", type, size, mode: 0, mtimeSeconds: 0 }), bytes, padding(size)];
}

interface HeaderFields {
  path: string;
  target: string;
  type: string;
  size: number;
  mode: number;
  mtimeSeconds: number;
}

function header({ path, target, type, size, mode, mtimeSeconds }: HeaderFields): Buffer {
  const block = Buffer.alloc(blockBytes);
  Buffer.from(path).copy(block, 0, 0, longestName);
  number(block, 100, 8, mode);
  number(block, 108, 8, 0);
  number(block, 116, 8, 0);
  number(block, 124, 12, size);
  number(block, 136, 12, Math.max(0, mtimeSeconds));
  block.write(type, 156, "latin1");
  Buffer.from(target).copy(block, 157, 0, longestName);
  block.write("ustar  \0", 257, "latin1");
  block.fill(" ", 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** Writes octal digits. A value that does not fit is written in GNU's binary form. */
function number(block: Buffer, offset: number, length: number, value: number): void {
  const octal = value.toString(8);
  if (octal.length < length) {
    block.write(`${octal.padStart(length - 1, "0")}\0`, offset, "latin1");
    return;
  }
  block.writeUInt8(0x80, offset);
  block.writeBigUInt64BE(BigInt(value), offset + length - 8);
}
