import { createHash } from "node:crypto";
import { SandboxError } from "@atoll/protocol";
import { SnapshotHeader } from "./snapshot-manifest.ts";

/**
 * A snapshot as one file: a line with the size and the hash of the header, the header as JSON, then the archive as it
 * is stored. The file contains all that is needed to verify it.
 */
const firstLine = /^atoll-snapshot 1 ([1-9][0-9]{0,4}) ([0-9a-f]{64})$/;
const longestLineBytes = 128;
const longestHeaderBytes = 16 * 1024;

export function writeHeader(header: SnapshotHeader): Buffer {
  const json = Buffer.from(`${JSON.stringify(SnapshotHeader.parse(header))}\n`);
  return Buffer.concat([Buffer.from(`atoll-snapshot 1 ${json.byteLength} ${digest(json)}\n`), json]);
}

/** Reads the header of an untrusted file; `rest` is what follows it. Rejects with `invalid_argument`. */
export async function readHeader(
  file: AsyncIterable<Buffer>,
): Promise<{ header: SnapshotHeader; rest: AsyncIterable<Buffer> }> {
  const pieces = file[Symbol.asyncIterator]();
  let held = Buffer.alloc(0);
  const more = async (): Promise<void> => {
    const { done, value } = await pieces.next();
    if (done === true) throw notSnapshot("it ends in its header");
    held = Buffer.concat([held, value]);
  };
  let end = held.indexOf("\n");
  while (end < 0 && held.byteLength <= longestLineBytes) {
    await more();
    end = held.indexOf("\n");
  }
  const [, length = "", sha256 = ""] = firstLine.exec(held.subarray(0, Math.max(0, end)).toString("latin1")) ?? [];
  const sizeBytes = Number(length);
  if (length === "" || sizeBytes > longestHeaderBytes) throw notSnapshot("it does not begin like one");
  held = held.subarray(end + 1);
  while (held.byteLength < sizeBytes) await more();
  const json = held.subarray(0, sizeBytes);
  if (digest(json) !== sha256) throw notSnapshot("its header was changed");
  return { header: parseHeader(json), rest: chain(held.subarray(sizeBytes), pieces) };
}

export function notSnapshot(because: string, cause?: unknown): SandboxError {
  return new SandboxError("invalid_argument", `Cannot import this as a snapshot: ${because}`, {
    suggestion: "Use an exported file that is complete and unchanged.",
    ...(cause === undefined ? {} : { cause }),
  });
}

function parseHeader(json: Buffer): SnapshotHeader {
  try {
    return SnapshotHeader.parse(JSON.parse(json.toString()));
  } catch (cause) {
    throw notSnapshot("this version does not understand its header", cause);
  }
}

async function* chain(first: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer, void, void> {
  try {
    if (first.byteLength > 0) yield first;
    for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
  } finally {
    await rest.return?.();
  }
}

function digest(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
