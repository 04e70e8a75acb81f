import { lstat, open, readdir, readlink } from "node:fs/promises";
import { join, posix } from "node:path";
import { blockBytes, encodeHeader, padding } from "./header.ts";

export interface PackOptions {
  signal: AbortSignal;
  /** Called for each socket, pipe and device, which an archive leaves out. */
  onSkipped: (path: string) => void;
  onBytes?: (bytes: number) => void;
  /** Whether a path, relative to the directory, is packed; what is in a directory that is not, is not either. */
  includes?: (path: string) => boolean;
}

/** Yields the directory's content as a tar archive, sorted by name; links stay links. */
export async function* pack(directory: string, options: PackOptions): AsyncGenerator<Uint8Array, void, undefined> {
  yield* packInto(directory, "", options);
  yield new Uint8Array(2 * blockBytes);
}

async function* packInto(
  directory: string,
  prefix: string,
  options: PackOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const names = await readdir(join(directory, prefix));
  for (const name of names.toSorted()) {
    options.signal.throwIfAborted();
    const path = posix.join(prefix, name);
    if (options.includes?.(path) === false) continue;
    const source = join(directory, path);
    const stats = await lstat(source);
    const shared = { path, mode: stats.mode, modifiedAtMs: stats.mtimeMs };
    if (stats.isDirectory()) {
      yield encodeHeader({ ...shared, type: "directory", sizeBytes: 0 });
      yield* packInto(directory, path, options);
    } else if (stats.isSymbolicLink()) {
      yield encodeHeader({ ...shared, type: "link", sizeBytes: 0, target: await readlink(source) });
    } else if (stats.isFile()) {
      yield encodeHeader({ ...shared, type: "file", sizeBytes: stats.size });
      yield* packFile(source, stats.size, options);
    } else {
      options.onSkipped(path);
    }
  }
}

/** Yields exactly as many bytes as the header says, even if the file grows while it is read. */
async function* packFile(
  path: string,
  sizeBytes: number,
  options: PackOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  const file = await open(path, "r");
  try {
    let left = sizeBytes;
    while (left > 0) {
      options.signal.throwIfAborted();
      const { bytesRead, buffer } = await file.read(Buffer.alloc(Math.min(left, 256 * 1024)));
      if (bytesRead === 0) throw new Error(`Cannot pack ${path}: it became shorter while it was read`);
      yield buffer.subarray(0, bytesRead);
      options.onBytes?.(bytesRead);
      left -= bytesRead;
    }
  } finally {
    await file.close();
  }
  yield padding(sizeBytes);
}
