import { type FileHandle, open } from "node:fs/promises";
import { pipeline, Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { hasErrno, startHostProcess } from "@atoll/host";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { MalformedArchive } from "./tar-header.ts";

interface Decompressor {
  file: string;
  args: string[];
}

/**
 * The compression formats of an archive, recognized by its first bytes and not by its name. The options keep the
 * programs from taking more memory than an honest archive needs.
 */
const formats: readonly { magic: string; decompressor: Decompressor | "gunzip" }[] = [
  { magic: "1f8b", decompressor: "gunzip" },
  { magic: "28b52ffd", decompressor: { file: "zstd", args: ["-dcq", "--memory=512MB"] } },
  { magic: "fd377a585a00", decompressor: { file: "xz", args: ["-dcq", "--memlimit-decompress=512MiB"] } },
  { magic: "425a68", decompressor: { file: "bzip2", args: ["-dcq"] } },
];

const chunkBytes = 256 * 1024;

/** Yields the uncompressed bytes of an archive. When the reader leaves, the program that decompresses is ended. */
export async function* openArchive(path: string, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const file = await openFile(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(8), 0, 8, 0);
    const magic = buffer.subarray(0, bytesRead).toString("hex");
    const decompressor = formats.find((format) => magic.startsWith(format.magic))?.decompressor;
    if (decompressor === undefined) yield* chunksOf(file, signal);
    else if (decompressor === "gunzip") yield* gunzip(file, signal);
    else yield* decompress(file, decompressor, signal);
  } finally {
    await file.close();
  }
}

async function openFile(path: string): Promise<FileHandle> {
  try {
    return await open(path, "r");
  } catch (cause) {
    if (!hasErrno(cause, "ENOENT", "ENOTDIR", "EACCES", "EISDIR")) throw cause;
    throw new SandboxError("invalid_argument", `Cannot open the archive ${path}`, { cause });
  }
}

async function* chunksOf(file: FileHandle, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  for (let position = 0; ;) {
    signal.throwIfAborted();
    const { buffer, bytesRead } = await file.read(Buffer.alloc(chunkBytes), 0, chunkBytes, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

async function* gunzip(file: FileHandle, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const gunzipped = createGunzip();
  // An error of the source destroys `gunzipped`, and the loop below throws it.
  pipeline(Readable.from(chunksOf(file, signal)), gunzipped, () => {});
  try {
    yield* gunzipped as AsyncIterable<Buffer>;
  } catch (cause) {
    signal.throwIfAborted();
    if (!hasErrno(cause, "Z_DATA_ERROR", "Z_BUF_ERROR")) throw cause;
    throw new MalformedArchive("its gzip data is damaged", { cause });
  }
}

async function* decompress(file: FileHandle, program: Decompressor, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const child = await startHostProcess(program.file, program.args, { signal, stdin: file.fd }).catch(
    (error: unknown) => {
      if (!isSandboxError(error, "spawn_failed")) throw error;
      throw new SandboxError("unsupported", `Cannot read the archive: the program ${program.file} is missing`, {
        cause: error,
        suggestion: `Install ${program.file}, or decompress the archive first.`,
      });
    },
  );
  let complaints = "";
  try {
    for await (const { stream, data } of child) {
      if (stream === "stdout") yield data;
      else complaints = `${complaints}${data.toString()}`.slice(-1000);
    }
    const { exitCode } = await child.wait();
    signal.throwIfAborted();
    if (exitCode !== 0) throw new MalformedArchive(`${program.file} cannot decompress it: ${complaints.trim()}`);
  } finally {
    await child.kill("SIGKILL");
    await child.wait();
  }
}
