/** The header of one entry of a tar archive. */
export interface Entry {
  type: "file" | "directory" | "link" | "hard-link";
  /** A relative path, with `/` between its parts and none at the end. */
  path: string;
  mode: number;
  modifiedAtMs: number;
  sizeBytes: number;
  /** The target of a symbolic link. For a hard link, the path of an entry before it. */
  target?: string;
}

export const blockBytes = 512;

const typeFlags = { file: "0", directory: "5", link: "2", "hard-link": "1" } as const;
const largestOctal = 0o77777777777;

/**
 * Returns the header blocks of an entry; values that are too long for a plain header go into a pax header before it.
 */
export function encodeHeader(entry: Entry): Uint8Array {
  const extra: [string, string][] = [];
  if (Buffer.byteLength(entry.path) > 100) extra.push(["path", entry.path]);
  if (entry.target !== undefined && Buffer.byteLength(entry.target) > 100) extra.push(["linkpath", entry.target]);
  if (entry.sizeBytes > largestOctal) extra.push(["size", String(entry.sizeBytes)]);
  extra.push(["mtime", (entry.modifiedAtMs / 1_000).toFixed(3)]);
  const body = Buffer.concat(extra.map(([name, value]) => paxRecord(name, value)));
  return Buffer.concat([
    block({ name: "pax", type: "x", size: body.length, mode: 0o644, seconds: 0, link: "" }),
    body,
    padding(body.length),
    block({
      name: entry.path,
      type: typeFlags[entry.type],
      size: entry.type === "file" ? Math.min(entry.sizeBytes, largestOctal) : 0,
      mode: entry.mode & 0o7777,
      seconds: Math.max(0, Math.floor(entry.modifiedAtMs / 1_000)),
      link: entry.target ?? "",
    }),
  ]);
}

/** Returns the bytes that fill up the last block of a body. */
export function padding(bytes: number): Uint8Array {
  return new Uint8Array((blockBytes - (bytes % blockBytes)) % blockBytes);
}

/** `<length> <name>=<value>\n`, where the length counts its own digits. */
function paxRecord(name: string, value: string): Buffer {
  const rest = Buffer.byteLength(` ${name}=${value}\n`);
  let length = rest + String(rest).length;
  if (rest + String(length).length > length) length = rest + String(length).length;
  return Buffer.from(`${length} ${name}=${value}\n`);
}

interface Fields {
  name: string;
  type: string;
  size: number;
  mode: number;
  seconds: number;
  link: string;
}

function block(fields: Fields): Buffer {
  const header = Buffer.alloc(blockBytes);
  Buffer.from(fields.name).copy(header, 0, 0, 100);
  header.write(`${octal(fields.mode, 7)}\0`, 100);
  header.write(`${octal(0, 7)}\0${octal(0, 7)}\0`, 108);
  header.write(`${octal(fields.size, 11)}\0`, 124);
  header.write(`${octal(Math.min(fields.seconds, largestOctal), 11)}\0`, 136);
  header.write("        ", 148);
  header.write(fields.type, 156);
  Buffer.from(fields.link).copy(header, 157, 0, 100);
  header.write("ustar\x0000", 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octal(sum, 6)}\0 `, 148);
  return header;
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, "0");
}

export interface RawHeader {
  path: string;
  typeFlag: string;
  mode: number;
  modifiedAtMs: number;
  sizeBytes: number;
  target: string;
}

/** Reads one header block. It throws on a wrong checksum, so that a broken archive is not partly unpacked. */
export function decodeHeader(header: Buffer): RawHeader {
  const expected = readNumber(header.subarray(148, 156));
  const sum = header.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  if (sum !== expected) throw new Error("the archive is damaged: a header has the wrong checksum");
  const isUstar = header.toString("latin1", 257, 262) === "ustar";
  const prefix = isUstar && header[262] === 0 ? readText(header.subarray(345, 500)) : "";
  const name = readText(header.subarray(0, 100));
  return {
    path: prefix === "" ? name : `${prefix}/${name}`,
    typeFlag: String.fromCharCode(header[156] ?? 0),
    mode: readNumber(header.subarray(100, 108)) & 0o7777,
    modifiedAtMs: readNumber(header.subarray(136, 148)) * 1_000,
    sizeBytes: readNumber(header.subarray(124, 136)),
    target: readText(header.subarray(157, 257)),
  };
}

/** Returns the records of a pax header that matter here. */
export function decodePax(body: Buffer): Map<string, string> {
  const records = new Map<string, string>();
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(0x20, at);
    const length = Number(body.toString("latin1", at, space));
    if (space === -1 || !Number.isInteger(length) || length < 5 || at + length > body.length) {
      throw new Error("the archive is damaged: a pax header cannot be read");
    }
    const record = body.toString("utf8", space + 1, at + length - 1);
    const equals = record.indexOf("=");
    records.set(record.slice(0, equals), record.slice(equals + 1));
    at += length;
  }
  return records;
}

export function readText(field: Buffer): string {
  const end = field.indexOf(0);
  return field.toString("utf8", 0, end === -1 ? field.length : end);
}

/** Reads octal digits, or a big-endian number with the top bit set where the digits would be too many. */
function readNumber(field: Buffer): number {
  if (((field[0] ?? 0) & 0x80) !== 0) {
    let value = (field[0] ?? 0) & 0x7f;
    for (const byte of field.subarray(1)) value = value * 256 + byte;
    return value;
  }
  const digits = readText(field).trim();
  return digits === "" ? 0 : Number.parseInt(digits, 8);
}
