import type { FileEntry } from "@atoll/engine";

/** A part of a file: from `offset`, `length` bytes that are all there. */
export interface ByteRange {
  offset: number;
  length: number;
}

/**
 * What a `Range` header asks of a file of this size (RFC 9110, 14.1). `undefined`: the whole file, because it asks for
 * several parts, or for nothing that this server knows. `unsatisfiable`: there is no such part.
 */
export function parseRange(header: string | undefined, sizeBytes: number): ByteRange | "unsatisfiable" | undefined {
  const [, first = "", last = ""] = /^\s*bytes\s*=\s*(\d{0,15})-(\d{0,15})\s*$/i.exec(header ?? "") ?? [];
  if (first === "" && last === "") return undefined;
  if (first === "") {
    const length = Math.min(Number(last), sizeBytes);
    return length === 0 ? "unsatisfiable" : { offset: sizeBytes - length, length };
  }
  const offset = Number(first);
  const end = last === "" ? sizeBytes : Math.min(Number(last) + 1, sizeBytes);
  if (last !== "" && Number(last) < offset) return undefined;
  return offset >= sizeBytes ? "unsatisfiable" : { offset, length: end - offset };
}

/** Another after every change: the time, the size or, for what is replaced as a whole, the inode differs. */
export function entityTag({ inode, sizeBytes, modifiedAtMs }: FileEntry): string {
  return `"${[inode, sizeBytes, modifiedAtMs].map((number) => number.toString(36)).join("-")}"`;
}

/** The file has no such part. Carries what HTTP wants said about it. */
export class UnsatisfiableRange extends Error {
  readonly statusCode = 416;
  readonly headers: Record<string, string>;

  constructor(sizeBytes: number) {
    super(`The file has ${sizeBytes} bytes`);
    this.headers = { "content-range": `bytes */${sizeBytes}`, "accept-ranges": "bytes" };
  }
}
