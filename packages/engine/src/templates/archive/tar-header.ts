export const blockBytes = 512;

/** The archive is malformed. The message completes "Cannot read the archive: ". */
export class MalformedArchive extends Error {
  override readonly name = "MalformedArchive";
}

/** One header block of the archive; the names may be cut, and earlier headers may override the fields. */
export interface TarHeader {
  type: string;
  path: string;
  linkPath: string;
  mode: number;
  uid: number;
  gid: number;
  size: number;
  mtimeSeconds: number;
}

/** Returns undefined for a block of zeros, which ends an archive. */
export function parseHeader(block: Buffer): TarHeader | undefined {
  if (block.every((byte) => byte === 0)) return undefined;
  if (!hasValidChecksum(block))
    throw new MalformedArchive("a header's checksum is wrong; it is damaged, or not a tar archive");
  const name = textAt(block, 0, 100);
  // GNU's older form has "ustar  " and other fields in the place of the prefix of POSIX.
  const isPosix = block.toString("latin1", 257, 263) === "ustar\0";
  const prefix = isPosix ? textAt(block, 345, 155) : "";
  return {
    type: String.fromCodePoint(block[156] ?? 0),
    path: prefix === "" ? name : `${prefix}/${name}`,
    linkPath: textAt(block, 157, 100),
    mode: numberAt(block, 100, 8),
    uid: numberAt(block, 108, 8),
    gid: numberAt(block, 116, 8),
    size: numberAt(block, 124, 12),
    mtimeSeconds: numberAt(block, 136, 12),
  };
}

/** Decodes a name, which must be UTF-8, because other bytes would be written to the disk as another name. */
export function decodeName(bytes: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new MalformedArchive(`the name ${JSON.stringify(bytes.toString("latin1"))} is not UTF-8`);
  }
}

function hasValidChecksum(block: Buffer): boolean {
  let sum = 0;
  // The checksum field itself counts as spaces.
  for (const [index, byte] of block.entries()) sum += index >= 148 && index < 156 ? 0x20 : byte;
  const text = block.toString("latin1", 148, 156).replaceAll("\0", " ").trim();
  return /^[0-7]+$/.test(text) && Number.parseInt(text, 8) === sum;
}

function textAt(block: Buffer, offset: number, length: number): string {
  const field = block.subarray(offset, offset + length);
  const end = field.indexOf(0);
  return decodeName(end < 0 ? field : field.subarray(0, end));
}

function numberAt(block: Buffer, offset: number, length: number): number {
  const field = block.subarray(offset, offset + length);
  const first = field[0] ?? 0;
  if (first >= 0x80) return binaryNumber(field, first);
  const text = field.toString("latin1").replaceAll("\0", " ").trim();
  if (text === "") return 0;
  if (!/^[0-7]+$/.test(text)) throw new MalformedArchive(`${JSON.stringify(text)} is not a number`);
  return checked(Number.parseInt(text, 8));
}

/**
 * Parses GNU's form for numbers that do not fit into octal digits: the high bit of the first byte, then a number in
 * two's complement.
 */
function binaryNumber(field: Buffer, first: number): number {
  if (first !== 0x80) throw new MalformedArchive("a number is negative or too large");
  let value = 0;
  for (const byte of field.subarray(1)) value = checked(value * 256 + byte);
  return value;
}

function checked(value: number): number {
  if (Number.isSafeInteger(value)) return value;
  throw new MalformedArchive("a number is too large");
}
