import { closeSync, fstatSync, openSync, readdirSync, readSync } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { longestLine } from "./chain.ts";

/** The file that is written; the older ones are `audit-<time>.jsonl`. */
export const currentFile = "audit.jsonl";

const rotated = /^audit-(\d+)\.jsonl$/;
const newline = 0x0a;
const pieceBytes = 64 * 1024;

/** The rotated files, oldest first. */
export function rotatedFiles(dir: string): string[] {
  return readdirSync(dir)
    .filter((name) => rotated.test(name))
    .toSorted((one, other) => stampOf(one) - stampOf(other));
}

export function rotatedName(stamp: number): string {
  return `audit-${String(stamp).padStart(15, "0")}.jsonl`;
}

/** The time when a file was rotated: none of its lines is later, unless the clock was set back. */
export function stampOf(name: string): number {
  return Number(rotated.exec(name)?.[1] ?? Number.POSITIVE_INFINITY);
}

/** All files of the log, oldest first. */
export function auditFiles(dir: string): string[] {
  return [...rotatedFiles(dir), ...readdirSync(dir).filter((name) => name === currentFile)];
}

/** Opens all files at once: a rotation after that changes nothing for the reader. */
export async function openAuditFiles(dir: string): Promise<{ name: string; file: FileHandle }[]> {
  for (;;) {
    const names = auditFiles(dir);
    const opened = await Promise.allSettled(names.map(async (name) => ({ name, file: await open(join(dir, name)) })));
    const files = opened.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    // A rotation renames the current file, so that one file would be opened twice, or not at all.
    if (files.length === names.length && names.join() === auditFiles(dir).join()) return files;
    await Promise.all(files.map(({ file }) => file.close()));
    const failed = opened.find((one) => one.status === "rejected");
    if (failed !== undefined && names.join() === auditFiles(dir).join()) throw failed.reason;
  }
}

export interface FileLine {
  text: string;
  number: number;
  /** False for what follows the last newline: a line that was not written to its end. */
  isEnded: boolean;
}

/** Yields the lines of a file. Of a line that is too long only the beginning is kept, so that memory is bounded. */
export async function* linesOf(file: FileHandle): AsyncGenerator<FileLine, void, undefined> {
  let rest = Buffer.alloc(0);
  let number = 1;
  let at = 0;
  for (;;) {
    const piece = Buffer.alloc(pieceBytes);
    const { bytesRead } = await file.read(piece, 0, pieceBytes, at);
    if (bytesRead === 0) break;
    at += bytesRead;
    let from = 0;
    for (;;) {
      const end = piece.subarray(0, bytesRead).indexOf(newline, from);
      if (end < 0) break;
      yield { text: Buffer.concat([rest, piece.subarray(from, end)]).toString(), number, isEnded: true };
      rest = Buffer.alloc(0);
      number += 1;
      from = end + 1;
    }
    rest = Buffer.concat([rest, piece.subarray(from, bytesRead)]).subarray(0, longestLine + 1);
  }
  if (rest.byteLength > 0) yield { text: rest.toString(), number, isEnded: false };
}

/** Returns the last line of a file, and what follows its newline. */
export function lastLineOf(path: string): { text: string | undefined; torn: string; endsAt: number } {
  const file = openSync(path, "r");
  try {
    const { size } = fstatSync(file);
    const length = Math.min(size, 2 * longestLine + 2);
    const bytes = Buffer.alloc(length);
    readSync(file, bytes, 0, length, size - length);
    const end = bytes.lastIndexOf(newline);
    const torn = bytes.subarray(end + 1).toString();
    if (end < 0) return { text: undefined, torn, endsAt: size - length };
    const start = end === 0 ? -1 : bytes.lastIndexOf(newline, end - 1);
    return { text: bytes.subarray(start + 1, end).toString(), torn, endsAt: size - length + end + 1 };
  } finally {
    closeSync(file);
  }
}
