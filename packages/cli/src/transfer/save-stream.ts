import { randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream as NodeStream } from "node:stream/web";
import type { Cli } from "../cli.ts";

export interface SaveOptions {
  signal: AbortSignal;
  mode?: number;
  onBytes: (bytes: number) => void;
}

/** To a file, which is there whole or not at all. Tells how many bytes it has. */
export async function saveStream(
  body: ReadableStream<Uint8Array>,
  target: string,
  { signal, mode = 0o666, onBytes }: SaveOptions,
): Promise<number> {
  // Beside the target, and with a name that is never too long.
  const draft = join(dirname(target), `.atoll-${randomUUID()}`);
  try {
    const file = createWriteStream(draft, { flags: "wx", mode });
    await pipeline(
      Readable.fromWeb(body as NodeStream),
      file.on("pipe", (source) => source.on("data", (piece: Buffer) => onBytes(piece.length))),
      { signal },
    );
    await rename(draft, target);
    return file.bytesWritten;
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

/** To stdout, as fast as it is read there. */
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
