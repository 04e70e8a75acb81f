import { createHash, type Hash } from "node:crypto";
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { SandboxError } from "@atoll/protocol";
import { assertSameBytes } from "../call-checks.ts";
import type { Checksum } from "../object-store.ts";
import { Gate } from "./gate.ts";
import { inParallel } from "./in-parallel.ts";

interface Piece {
  index: number;
  data: Buffer;
  isLast: boolean;
}

interface SendOptions {
  pieceBytes: number;
  gate: Gate;
  signal: AbortSignal;
}

/**
 * Reads a file once, from front to back, and sends its pieces several at a time; the gate limits how many pieces are in
 * memory. Rejects when the file does not have the expected bytes, and then the pieces must not be used. An empty file
 * is one empty piece.
 */
export async function sendFile(
  path: string,
  expected: Checksum,
  options: SendOptions,
  send: (piece: Piece, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  await using file = await openSource(path);
  const { sizeBytes } = file;
  if (sizeBytes !== expected.sizeBytes) assertSameBytes(path, expected, { sha256: "not read", sizeBytes });
  const hash = createHash("sha256");
  const count = Math.max(1, Math.ceil(sizeBytes / options.pieceBytes));
  await inParallel<Piece>(count, {
    ...options,
    prepare: async (index) => {
      const offset = index * options.pieceBytes;
      const data = await readFully(file.handle, offset, Math.min(options.pieceBytes, sizeBytes - offset));
      hash.update(data);
      return { index, data, isLast: index === count - 1 };
    },
    work: send,
  });
  assertSameBytes(path, expected, { sizeBytes, sha256: hash.digest("hex") });
}

/** Reads a small file, and rejects unless it has the expected bytes. */
export async function readWhole(path: string, expected: Checksum, signal: AbortSignal): Promise<Buffer> {
  const pieces: Buffer[] = [];
  const alone = { pieceBytes: Math.max(1, expected.sizeBytes), gate: new Gate(1), signal };
  await sendFile(path, expected, alone, async ({ data }) => void pieces.push(data));
  return Buffer.concat(pieces);
}

/** Hashes a file, reading small pieces. The caller may add to the hash. */
export async function hashFile(path: string, signal: AbortSignal): Promise<{ hash: Hash; sizeBytes: number }> {
  await using file = await openSource(path);
  const hash = createHash("sha256");
  let sizeBytes = 0;
  for await (const chunk of file.handle.createReadStream({ autoClose: false, highWaterMark: 1 << 20 })) {
    signal.throwIfAborted();
    hash.update(chunk as Buffer);
    sizeBytes += (chunk as Buffer).length;
  }
  return { hash, sizeBytes };
}

/** Opens a file for reading. A path that is no file is the caller's mistake. */
export async function openSource(path: string): Promise<{ handle: FileHandle; sizeBytes: number } & AsyncDisposable> {
  const refuse = (cause: unknown): never => {
    throw new SandboxError("invalid_argument", `Cannot read ${path}: it is not a file that can be read`, { cause });
  };
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(refuse);
  const stats = await handle.stat();
  if (!stats.isFile()) {
    await handle.close();
    refuse(undefined);
  }
  return { handle, sizeBytes: stats.size, [Symbol.asyncDispose]: () => handle.close() };
}

/** Reads what the file has of a range. That is less when the file has become shorter, which its checksum then shows. */
async function readFully(handle: FileHandle, offset: number, length: number): Promise<Buffer> {
  const data = Buffer.allocUnsafe(length);
  let filled = 0;
  while (filled < length) {
    const { bytesRead } = await handle.read(data, filled, length - filled, offset + filled);
    if (bytesRead === 0) return data.subarray(0, filled);
    filled += bytesRead;
  }
  return data;
}
