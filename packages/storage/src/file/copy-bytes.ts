import { createHash, type Hash } from "node:crypto";
import { constants, copyFile, open, type FileHandle } from "node:fs/promises";
import type { CallOptions, Checksum } from "../object-store.ts";
import { hasErrno } from "./file-failure.ts";

const chunkBytes = 1 << 20;
const zeros = Buffer.alloc(chunkBytes);

export interface CopyOptions extends CallOptions {
  /** How many bytes are copied from the start of the source, if it has that many. */
  sizeBytes: number;
  onProgress?: (copiedBytes: number) => void;
}

/**
 * Copies an open file to one that does not exist yet, and returns the checksum of what was copied. Where the file
 * system can share blocks no bytes are written. The copy is not durable yet.
 */
export async function copyBytes(source: FileHandle, target: string, options: CopyOptions): Promise<Checksum> {
  if (await cloneFile(source, target)) return sumClone(target, options);
  const file = await open(target, "wx", 0o600);
  try {
    const sum = await pump(source, options, (chunk, offset) => writeChunk(file, chunk, offset));
    // Zeros at the end were skipped.
    await file.truncate(sum.sizeBytes);
    return sum;
  } finally {
    await file.close();
  }
}

async function sumClone(path: string, options: CopyOptions): Promise<Checksum> {
  const file = await open(path, "r+");
  try {
    await file.chmod(0o600);
    if ((await file.stat()).size > options.sizeBytes) await file.truncate(options.sizeBytes);
    return await pump(file, options, async () => {});
  } finally {
    await file.close();
  }
}

/** Clones the file through its descriptor, because it may have lost its name by now. */
async function cloneFile(source: FileHandle, target: string): Promise<boolean> {
  try {
    await copyFile(`/proc/self/fd/${source.fd}`, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch (error) {
    if (hasErrno(error, "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EXDEV", "EINVAL", "ENOTTY", "EACCES", "EPERM"))
      return false;
    throw error;
  }
}

/** Reads ahead by one chunk while the chunk before it is hashed and written. */
async function pump(
  source: FileHandle,
  options: CopyOptions,
  write: (chunk: Buffer, offset: number) => Promise<void>,
): Promise<Checksum> {
  const hash = createHash("sha256");
  const buffers = [Buffer.allocUnsafe(chunkBytes), Buffer.allocUnsafe(chunkBytes)] as const;
  let offset = 0;
  const read = (buffer: Buffer, start: number) =>
    readChunk(source, buffer.subarray(0, Math.max(0, options.sizeBytes - start)), start);
  let chunk = await read(buffers[0], 0);
  for (let turn = 1; chunk.length > 0; turn += 1) {
    options.signal?.throwIfAborted();
    const ahead = read(turn % 2 === 0 ? buffers[0] : buffers[1], offset + chunk.length);
    const [next] = await bothSettled(ahead, sumAndWrite(hash, chunk, offset, write));
    offset += chunk.length;
    chunk = next;
    options.onProgress?.(offset);
  }
  options.signal?.throwIfAborted();
  if (offset === 0) options.onProgress?.(0);
  return { sha256: hash.digest("hex"), sizeBytes: offset };
}

async function sumAndWrite(
  hash: Hash,
  chunk: Buffer,
  offset: number,
  write: (chunk: Buffer, offset: number) => Promise<void>,
): Promise<void> {
  const written = write(chunk, offset);
  hash.update(chunk);
  await written;
}

/** Waits for both even if one fails, because the file that they use is closed next. */
async function bothSettled<A, B>(one: Promise<A>, two: Promise<B>): Promise<[A, B]> {
  await Promise.allSettled([one, two]);
  return Promise.all([one, two]);
}

async function readChunk(file: FileHandle, buffer: Buffer, offset: number): Promise<Buffer> {
  let filled = 0;
  while (filled < buffer.length) {
    const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, offset + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}

/** Leaves zeros as holes: images of memory and disks are full of them. */
async function writeChunk(file: FileHandle, chunk: Buffer, offset: number): Promise<void> {
  if (chunk.equals(zeros.subarray(0, chunk.length))) return;
  let written = 0;
  while (written < chunk.length) {
    const { bytesWritten } = await file.write(chunk, written, chunk.length - written, offset + written);
    written += bytesWritten;
  }
}
