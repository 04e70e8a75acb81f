import { randomUUID } from "node:crypto";
import { link, open, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { assertSameBytes } from "../call-checks.ts";
import type { ByteRange, Checksum } from "../object-store.ts";
import type { Gate } from "./gate.ts";
import { inParallel } from "./in-parallel.ts";
import { hashFile } from "./send-file.ts";

export interface ReceiveOptions {
  pieceBytes: number;
  gate: Gate;
  signal: AbortSignal;
}

/**
 * Writes an object to a file, several ranges at a time. The file appears under its name when it is complete, on disk
 * and has the right checksum; until then it has another name in the same directory, and a failure removes it.
 */
export async function receiveFile(
  path: string,
  expected: Checksum,
  options: ReceiveOptions,
  read: (range: ByteRange, signal: AbortSignal) => AsyncIterable<Buffer>,
): Promise<void> {
  await assertFree(path);
  const draft = `${path}.${randomUUID()}.part`;
  try {
    await fill(draft, expected.sizeBytes, options, read);
    const { hash, sizeBytes } = await hashFile(draft, options.signal);
    assertSameBytes(path, expected, { sizeBytes, sha256: hash.digest("hex") });
    // Unlike a rename, a link does not replace a file that has appeared at the path by now.
    await link(draft, path).catch((cause: unknown) => refuseTaken(path, cause));
  } finally {
    await rm(draft, { force: true });
  }
  await syncDirectory(dirname(path));
}

async function fill(
  draft: string,
  sizeBytes: number,
  options: ReceiveOptions,
  read: (range: ByteRange, signal: AbortSignal) => AsyncIterable<Buffer>,
): Promise<void> {
  const file = await open(draft, "wx", 0o600);
  try {
    await inParallel<ByteRange>(Math.ceil(sizeBytes / options.pieceBytes), {
      ...options,
      prepare: async (index) => {
        const offset = index * options.pieceBytes;
        return { offset, length: Math.min(options.pieceBytes, sizeBytes - offset) };
      },
      work: async (range, signal) => {
        let position = range.offset;
        for await (const chunk of read(range, signal)) {
          await file.write(chunk, 0, chunk.length, position);
          position += chunk.length;
        }
      },
    });
    await file.sync();
  } finally {
    await file.close();
  }
}

async function assertFree(path: string): Promise<void> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  if (found !== undefined) refuseTaken(path, undefined);
}

function refuseTaken(path: string, cause: unknown): never {
  if (cause !== undefined && (cause as NodeJS.ErrnoException).code !== "EEXIST") throw cause as Error;
  throw new SandboxError("already_exists", `Cannot download to ${path}: there is a file already`, { cause });
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
