import { closeSync, fstatSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { hasErrno } from "@atoll/host";
import { AuditHead } from "@atoll/protocol";
import { z } from "zod";
import { authenticate, isSame } from "./chain.ts";

export const headFile = "head.json";

/** A record of this length is in one sector, so it is written whole or not at all. */
const recordBytes = 512;

/** What the log ends with, and what rotation has dropped from its beginning. */
const HeadRecord = z.strictObject({ ...AuditHead.shape, dropped: AuditHead.optional(), mac: z.string() });
export type HeadRecord = Omit<z.infer<typeof HeadRecord>, "mac">;

export type ReadHead = { record: HeadRecord; isAuthentic: boolean | undefined } | "missing" | "unreadable";

/** Keeps the head of the log in a file of its own, so that a log that was cut at its end is found out. */
export class HeadFile {
  readonly #file: number;
  readonly #key: Buffer;

  constructor(dir: string, key: Buffer) {
    this.#key = key;
    const path = join(dir, headFile);
    this.#file = openOrCreate(path);
  }

  write(record: HeadRecord): void {
    const text = JSON.stringify(record);
    const mac = authenticate(this.#key, `head ${text}`);
    const bytes = Buffer.alloc(recordBytes, " ");
    bytes.write(`${text.slice(0, -1)},"mac":"${mac}"}`);
    bytes.write("\n", recordBytes - 1);
    writeSync(this.#file, bytes, 0, recordBytes, 0);
  }

  close(): void {
    closeSync(this.#file);
  }
}

function openOrCreate(path: string): number {
  try {
    return openSync(path, "r+", 0o600);
  } catch (error) {
    if (!hasErrno(error, "ENOENT")) throw error;
    return openSync(path, "wx", 0o600);
  }
}

/** Reads the head. An empty file counts as none: the process died before its first write. */
export function readHead(dir: string, key: Buffer | undefined): ReadHead {
  let text: string;
  try {
    const file = openSync(join(dir, headFile), "r");
    try {
      if (fstatSync(file).size > recordBytes) return "unreadable";
      text = readFileSync(file, "utf8");
    } finally {
      closeSync(file);
    }
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return "missing";
    throw error;
  }
  if (text === "") return "missing";
  try {
    const { mac, ...record } = HeadRecord.parse(JSON.parse(text));
    const isAuthentic =
      key === undefined ? undefined : isSame(authenticate(key, `head ${JSON.stringify(record)}`), mac);
    return { record, isAuthentic };
  } catch {
    return "unreadable";
  }
}
