import { randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream as NodeStream } from "node:stream/web";
import { unpack } from "../archive/unpack.ts";
import { UsageError } from "../input/usage-error.ts";
import type { Transfer, Transferred } from "./transfer.ts";

/** Out of the sandbox to here. A file is there whole or not at all. */
export async function download(transfer: Transfer, from: string, to: string): Promise<Transferred> {
  const { cli, files, user } = transfer;
  const info = await files.stat(from, { user, signal: cli.signal });
  if (to === "-") {
    if (info.type === "directory") throw new UsageError(`Cannot print ${from}: it is a directory`);
    return downloadToStdout(transfer, from);
  }
  const name = nameOf(from);
  const isInto = to.endsWith("/") || (await stat(to).catch(() => undefined))?.isDirectory() === true;
  const target = isInto && name !== undefined ? join(to, name) : to;
  if (info.type === "directory") {
    const archive = await files.download(from, { user, signal: cli.signal });
    return unpack(archive, target, { ...transfer, signal: cli.signal });
  }
  return downloadFile(transfer, from, target, info.mode);
}

/** The last part of a path inside; a home directory has no name of its own. */
function nameOf(path: string): string | undefined {
  const name = posix.basename(posix.normalize(path));
  return name === "." || name === ".." || name === "" ? undefined : basename(name);
}

async function downloadFile(transfer: Transfer, from: string, target: string, mode: number): Promise<Transferred> {
  const { cli, files, user, onBytes } = transfer;
  // Beside the target, and with a name that is never too long.
  const draft = join(dirname(target), `.atoll-${randomUUID()}`);
  try {
    const body = await files.read(from, { user, as: "stream", signal: cli.signal });
    const file = createWriteStream(draft, { flags: "wx", mode: mode & 0o777 });
    await pipeline(
      Readable.fromWeb(body as NodeStream),
      file.on("pipe", (source) => source.on("data", (piece: Buffer) => onBytes(piece.length))),
      {
        signal: cli.signal,
      },
    );
    await rename(draft, target);
    return { files: 1, bytes: file.bytesWritten };
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

async function downloadToStdout({ cli, files, user, onBytes }: Transfer, from: string): Promise<Transferred> {
  const body = await files.read(from, { user, as: "stream", signal: cli.signal });
  let bytes = 0;
  for await (const piece of body as unknown as AsyncIterable<Uint8Array>) {
    await cli.write(piece);
    onBytes(piece.length);
    bytes += piece.length;
  }
  return { files: 1, bytes };
}
