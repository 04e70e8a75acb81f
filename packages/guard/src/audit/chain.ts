import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { AuditLine, type AuditHead } from "@atoll/protocol";

/** What precedes the first line of a chain. */
export const origin: AuditHead = { seq: 0, hash: "0".repeat(64) };

/** No line is longer; a longer one in a file was not written by an audit log. */
export const longestLine = 64 * 1024;

/**
 * The end of each line. The hash covers everything before it, with the number of the line and the hash of the line
 * before. The code needs the server's key, so only the server can have written the line.
 */
const ending = /,"hash":"([0-9a-f]{64})","mac":"([0-9a-f]{32})"\}$/;

export interface ChainedLine extends AuditHead {
  prev: string;
  line: AuditLine;
  /** Whether the hash is that of the line. */
  isWhole: boolean;
  /** Whether the server with this key wrote it; undefined without a key. */
  isAuthentic: boolean | undefined;
}

/** Returns the text of the line after `before`, without a newline. */
export function chainLine(key: Buffer, before: AuditHead, entry: object): { head: AuditHead; text: string } {
  const seq = before.seq + 1;
  const body = JSON.stringify({ seq, ...entry, prev: before.hash }).slice(0, -1);
  const hash = sha256(body);
  return { head: { seq, hash }, text: `${body},"hash":"${hash}","mac":"${authenticate(key, hash)}"}` };
}

/** Reads a line, or returns undefined if it is not one of a chain. */
export function parseChained(text: string, key: Buffer | undefined): ChainedLine | undefined {
  const match = ending.exec(text);
  const line = parseLine(text);
  if (match === null || line?.seq === undefined || line.prev === undefined) return undefined;
  const [end, hash = "", mac = ""] = match;
  const isAuthentic = key === undefined ? undefined : isSame(authenticate(key, hash), mac);
  const isWhole = sha256(text.slice(0, -end.length)) === hash;
  return { seq: line.seq, hash, prev: line.prev, line, isWhole, isAuthentic };
}

export function parseLine(text: string): AuditLine | undefined {
  try {
    return AuditLine.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** Returns a code that only the owner of the key can make. */
export function authenticate(key: Buffer, text: string): string {
  return createHmac("sha256", key).update(text).digest("hex").slice(0, 32);
}

export function isSame(one: string, other: string): boolean {
  return one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other));
}

function sha256(data: string | Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}
