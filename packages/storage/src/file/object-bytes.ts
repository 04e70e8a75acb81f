import type { Stats } from "node:fs";
import { open, stat, type FileHandle } from "node:fs/promises";
import { SandboxError } from "@atoll/protocol";
import type { ByteRange, CallOptions, ObjectInfo, ObjectVersion } from "../object-store.ts";
import { hasErrno } from "./file-failure.ts";
import type { ObjectDirectory } from "./object-directory.ts";

const chunkBytes = 256 << 10;

export interface OpenBytes {
  file: FileHandle;
  info: ObjectInfo;
}

/**
 * Opens the bytes of the object as it is now. They stay readable while they are open, even if the object is replaced or
 * removed.
 */
export async function openBytes(key: string, directory: ObjectDirectory): Promise<OpenBytes | undefined> {
  return withCurrent(key, directory, async (version) => {
    const file = await open(directory.bytes(version), "r");
    try {
      return { file, info: infoOf(key, version, await file.stat()) };
    } catch (error) {
      await file.close();
      throw error;
    }
  });
}

export async function statBytes(key: string, directory: ObjectDirectory): Promise<ObjectInfo | undefined> {
  return withCurrent(key, directory, async (version) => infoOf(key, version, await stat(directory.bytes(version))));
}

/** Reads a piece of open bytes and closes them at its end. */
export function readRange(bytes: OpenBytes, range: ByteRange, options: CallOptions): AsyncIterable<Buffer> {
  return stream(bytes.file, range.offset, Math.min(range.offset + range.length, bytes.info.sizeBytes), options);
}

async function* stream(file: FileHandle, start: number, end: number, options: CallOptions): AsyncIterable<Buffer> {
  try {
    for (let offset = start; offset < end;) {
      options.signal?.throwIfAborted();
      const chunk = Buffer.allocUnsafe(Math.min(chunkBytes, end - offset));
      const { bytesRead } = await file.read(chunk, 0, chunk.length, offset);
      if (bytesRead === 0) throw new Error("The bytes of an object became fewer while they were read");
      offset += bytesRead;
      yield chunk.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

async function withCurrent<T>(
  key: string,
  directory: ObjectDirectory,
  use: (version: ObjectVersion) => Promise<T>,
): Promise<T | undefined> {
  let missing: ObjectVersion | undefined;
  for (;;) {
    const version = await directory.current();
    if (version === undefined) return undefined;
    // Bytes are removed only after their version has ceased to be the object, and a version never becomes the object
    // again.
    if (version === missing) {
      throw new SandboxError("storage_failed", `Cannot read ${key}: its bytes are not on the disk`, {
        suggestion: "The store's directory was changed by hand. Remove the object, or restore it from a backup.",
        details: { key, version },
      });
    }
    try {
      return await use(version);
    } catch (error) {
      if (!hasErrno(error, "ENOENT")) throw error;
      missing = version;
    }
  }
}

export function infoOf(key: string, version: ObjectVersion, stats: Stats): ObjectInfo {
  return { key, sizeBytes: stats.size, version, modifiedAtMs: Math.floor(stats.mtimeMs) };
}
