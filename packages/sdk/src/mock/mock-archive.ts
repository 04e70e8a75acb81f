import { SandboxError } from "@atoll/protocol";

/** A file, or without content a directory, by its path in the archive. */
export interface ArchiveEntry {
  path: string;
  content: Uint8Array | undefined;
  mode: number;
  modifiedAtMs: number;
}

const blockBytes = 512;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Makes a tar archive; a name that is too long for its header goes into a pax header before it. */
export function packTar(entries: Iterable<ArchiveEntry>): Uint8Array {
  const parts: Uint8Array[] = [];
  for (const { path, content, mode, modifiedAtMs } of entries) {
    const name = content === undefined ? `${path}/` : path;
    if (encoder.encode(name).length > 100) {
      const record = paxRecord("path", name);
      parts.push(header("pax", "x", record.length, 0o644, 0), padded(record));
    }
    parts.push(header(name, content === undefined ? "5" : "0", content?.length ?? 0, mode, modifiedAtMs));
    if (content !== undefined) parts.push(padded(content));
  }
  parts.push(new Uint8Array(2 * blockBytes));
  return joined(parts);
}

/** Returns the files and directories of a tar archive. Links and devices are left out, since the mock has none. */
export function unpackTar(archive: Uint8Array): ArchiveEntry[] {
  const entries: ArchiveEntry[] = [];
  let longName: string | undefined;
  for (let at = 0; ;) {
    const block = archive.subarray(at, at + blockBytes);
    if (block.length < blockBytes) throw refusal("it is cut short");
    if (block.every((byte) => byte === 0)) return entries;
    if (sumOf(block) !== octal(block, 148, 8)) throw refusal("a header's checksum is wrong");
    const sizeBytes = octal(block, 124, 12);
    const content = archive.subarray(at + blockBytes, at + blockBytes + sizeBytes);
    if (content.length < sizeBytes) throw refusal("it is cut short");
    at += blockBytes + Math.ceil(sizeBytes / blockBytes) * blockBytes;
    const type = String.fromCodePoint(block[156] ?? 0);
    if (type === "x") {
      longName = / path=([^\n]*)\n/.exec(decoder.decode(content))?.[1] ?? longName;
      continue;
    }
    const path = cleanPath(longName ?? nameOf(block));
    longName = undefined;
    const shared = { path, mode: octal(block, 100, 8) & 0o7777, modifiedAtMs: octal(block, 136, 12) * 1_000 };
    if (type === "5") entries.push({ ...shared, content: undefined });
    else if (type === "0" || type === "\0") entries.push({ ...shared, content: content.slice() });
  }
}

function refusal(because: string): SandboxError {
  return new SandboxError("invalid_argument", `Cannot read the archive: ${because}`);
}

/** Normalises a path, and refuses one that leads out of the directory that the archive is unpacked in. */
function cleanPath(name: string): string {
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes("..") || name.startsWith("/")) throw refusal(`${JSON.stringify(name)} leads out of it`);
  return parts.join("/");
}

function header(name: string, type: string, sizeBytes: number, mode: number, modifiedAtMs: number): Uint8Array {
  const block = new Uint8Array(blockBytes);
  const put = (text: string, at: number): void => block.set(encoder.encode(text), at);
  block.set(encoder.encode(name).subarray(0, 100), 0);
  put(`${(mode & 0o7777).toString(8).padStart(7, "0")}\0`, 100);
  put("0001750\0", 108);
  put("0001750\0", 116);
  put(`${sizeBytes.toString(8).padStart(11, "0")}\0`, 124);
  put(
    `${Math.floor(modifiedAtMs / 1_000)
      .toString(8)
      .padStart(11, "0")}\0`,
    136,
  );
  put(type, 156);
  put("ustar\u000000", 257);
  put(`${sumOf(block).toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

/** Sums all bytes of a header, where those of the checksum itself count as spaces. */
function sumOf(block: Uint8Array): number {
  return block.reduce((sum, byte, at) => sum + (at >= 148 && at < 156 ? 32 : byte), 0);
}

function octal(block: Uint8Array, at: number, length: number): number {
  return Number.parseInt(text(block, at, length).trim() || "0", 8);
}

function nameOf(block: Uint8Array): string {
  const prefix = text(block, 345, 155);
  const name = text(block, 0, 100);
  return prefix === "" || text(block, 257, 5) !== "ustar" ? name : `${prefix}/${name}`;
}

function text(block: Uint8Array, at: number, length: number): string {
  const field = block.subarray(at, at + length);
  const end = field.indexOf(0);
  return decoder.decode(end === -1 ? field : field.subarray(0, end));
}

/** `<length> <name>=<value>\n`, where the length counts its own digits. */
function paxRecord(name: string, value: string): Uint8Array {
  const rest = encoder.encode(` ${name}=${value}\n`);
  let length = rest.length + String(rest.length).length;
  if (rest.length + String(length).length > length) length = rest.length + String(length).length;
  return joined([encoder.encode(String(length)), rest]);
}

function padded(content: Uint8Array): Uint8Array {
  const whole = new Uint8Array(Math.ceil(content.length / blockBytes) * blockBytes);
  whole.set(content);
  return whole;
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
