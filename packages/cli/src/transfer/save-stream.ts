import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { lstat, open, readlink, realpath, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream as NodeStream } from "node:stream/web";
import type { Cli } from "../cli.ts";

export interface SaveOptions {
  signal: AbortSignal;
  mode?: number;
  onBytes: (bytes: number) => void;
}

/**
 * Saves a stream to a file, completely or not at all; a device or a pipe gets the bytes as they come. Resolves with
 * their number.
 */
export async function saveStream(
  body: ReadableStream<Uint8Array>,
  target: string,
  { signal, mode = 0o666, onBytes }: SaveOptions,
): Promise<number> {
  let draft: string | undefined;
  try {
    const file = await placeOf(target);
    // The draft is in the file's directory, and its name is never too long.
    draft = file === undefined ? undefined : join(dirname(file), `.atoll-${randomUUID()}`);
    const { O_TRUNC, O_WRONLY } = constants;
    const handle = draft === undefined ? await open(target, O_WRONLY | O_TRUNC) : await open(draft, "wx", mode);
    const sink = handle.createWriteStream();
    await pipeline(
      Readable.fromWeb(body as NodeStream),
      sink.on("pipe", (source) => source.on("data", (piece: Buffer) => onBytes(piece.length))),
      { signal },
    );
    if (draft !== undefined && file !== undefined) await rename(draft, file);
    return sink.bytesWritten;
  } catch (error) {
    if (draft !== undefined) await rm(draft, { force: true });
    // Nothing has read the body yet, so nothing else makes the server stop.
    if (!body.locked) await body.cancel(error);
    throw withTarget(error, target);
  }
}

/**
 * Returns the file that a path leads to, so that a link to it stays a link. Undefined for anything that a file must not
 * replace: a device, a pipe, or an open file that no longer has a name.
 */
async function placeOf(target: string): Promise<string | undefined> {
  const stats = await unlessMissing(stat(target));
  if (stats !== undefined) return stats.isFile() ? unlessMissing(realpath(target)) : undefined;
  const isLink = (await unlessMissing(lstat(target)))?.isSymbolicLink() === true;
  if (!isLink) return target;
  // The link leads to a file that does not exist yet.
  return placeOf(resolve(await realpath(dirname(target)), await readlink(target)));
}

async function unlessMissing<Found>(looking: Promise<Found>): Promise<Found | undefined> {
  try {
    return await looking;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Replaces the name of the draft in an error with that of the target, which the user knows. */
function withTarget(error: unknown, target: string): unknown {
  if (!(error instanceof Error) || !("syscall" in error) || error.syscall !== "open") return error;
  const [reason] = error.message.split(",");
  return new Error(`Cannot write ${target}: ${reason}`, { cause: error });
}

/** Writes to stdout, as fast as its reader reads. */
export async function printStream(
  cli: Cli,
  body: ReadableStream<Uint8Array>,
  onBytes: (bytes: number) => void,
): Promise<number> {
  let bytes = 0;
  for await (const piece of body as unknown as AsyncIterable<Uint8Array>) {
    await cli.write(piece);
    onBytes(piece.length);
    bytes += piece.length;
  }
  return bytes;
}
