/** A header that no real tar writes. */
export interface ForgedEntry {
  path?: string;
  type?: string;
  content?: Uint8Array | string;
  /** The size in the header, if it is not the content's. */
  size?: number;
  linkPath?: string;
  mode?: number;
  uid?: number;
  gid?: number;
  magic?: string;
  prefix?: string;
  /** Bytes to write over the finished header, before its checksum is made. */
  overwrite?: { offset: number; bytes: Buffer };
  checksum?: number;
}

const block = 512;

export function forgeEntry(entry: ForgedEntry): Buffer {
  const content = Buffer.from(entry.content ?? "");
  const header = Buffer.alloc(block);
  header.write(entry.path ?? "file", 0, 100, "utf8");
  octal(header, 100, 8, entry.mode ?? 0o644);
  octal(header, 108, 8, entry.uid ?? 0);
  octal(header, 116, 8, entry.gid ?? 0);
  octal(header, 124, 12, entry.size ?? content.length);
  octal(header, 136, 12, 1_000_000_000);
  header.write(entry.type ?? "0", 156, 1, "latin1");
  header.write(entry.linkPath ?? "", 157, 100, "utf8");
  header.write(entry.magic ?? "ustar\x0000", 257, 8, "latin1");
  header.write(entry.prefix ?? "", 345, 155, "utf8");
  entry.overwrite?.bytes.copy(header, entry.overwrite.offset);
  header.fill(" ", 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${(entry.checksum ?? sum).toString(8).padStart(6, "0")}\0 `, 148, 8, "latin1");
  return Buffer.concat([header, content, Buffer.alloc((block - (content.length % block)) % block)]);
}

/** Makes an archive with the two blocks of zeros that end it. */
export function forgeTar(...entries: ForgedEntry[]): Buffer {
  return Buffer.concat([...entries.map(forgeEntry), Buffer.alloc(2 * block)]);
}

/** Makes the content of an extended header. */
export function paxRecords(records: Record<string, string>): Buffer {
  const lines = Object.entries(records).map(([key, value]) => {
    const rest = Buffer.byteLength(` ${key}=${value}\n`);
    let length = rest + String(rest).length;
    if (String(length).length + rest !== length) length = rest + String(length).length;
    return `${length} ${key}=${value}\n`;
  });
  return Buffer.from(lines.join(""));
}

function octal(header: Buffer, offset: number, length: number, value: number): void {
  header.write(`${value.toString(8).padStart(length - 1, "0")}\0`, offset, length, "latin1");
}
