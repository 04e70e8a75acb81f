import { createReadStream } from "node:fs";
import type { Cli } from "../cli.ts";
import { formatBytes } from "../output/amount.ts";
import { stdinPieces } from "./stdin-pieces.ts";
import { UsageError } from "./usage-error.ts";

export interface ReadLimit {
  maxBytes: number;
  /** The suggestion for larger input. */
  hint: string;
}

/** Reads all of stdin, up to a limit. */
export async function readStdin(cli: Cli, limit: ReadLimit): Promise<Buffer> {
  const bytes = await collect(stdinPieces(cli.stdin, cli.signal), "stdin", limit);
  cli.signal.throwIfAborted();
  return bytes;
}

/** Reads a whole file, up to a limit. `missing` is the suggestion for a file that cannot be read. */
export async function readFile(path: string, limit: ReadLimit & { missing?: string }): Promise<Buffer> {
  const source: AsyncIterable<Buffer> = createReadStream(path);
  try {
    return await collect(source, path, limit);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`Cannot read ${path}: ${(error as Error).message}`, limit.missing);
  }
}

async function collect(source: AsyncIterable<Buffer>, name: string, limit: ReadLimit): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of source) {
    length += piece.length;
    if (length > limit.maxBytes) {
      throw new UsageError(`Cannot read ${name}: it is larger than ${formatBytes(limit.maxBytes)}`, limit.hint);
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}
