import type { FileEntry } from "@atoll/engine";

/** A part of a file: `length` bytes from `offset`, all of which exist. */
export interface ByteRange {
  offset: number;
  length: number;
}

/**
 * Parses a `Range` header for a file of this size (RFC 9110, 14.1). `undefined` means the whole file, because the
 * header asks for several parts or is not understood. `unsatisfiable` means that there is no such part.
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

/**
 * Returns a tag that differs after every change: the time, the size or, for a file that was replaced as a whole, the
 * inode differs.
 */
export function entityTag({ inode, sizeBytes, modifiedAtMs }: FileEntry): string {
  return `"${[inode, sizeBytes, modifiedAtMs].map((number) => number.toString(36)).join("-")}"`;
}

/** Thrown when the file has no such part. It has the status and headers that HTTP requires. */
export class UnsatisfiableRange extends Error {
  readonly statusCode = 416;
  readonly headers: Record<string, string>;

  constructor(sizeBytes: number) {
    super(`The file has ${sizeBytes} bytes`);
    this.headers = { "content-range": `bytes */${sizeBytes}`, "accept-ranges": "bytes" };
  }
}
