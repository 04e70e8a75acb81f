import { open } from "node:fs/promises";

const pieceBytes = 64 * 1024;
const mostPieces = 16;

/** A line without its end, and the offset of the next one. */
export interface Line {
  text: string;
  next: number;
}

/**
 * Reads lines of files that only grow. A reader keeps only its place: the blocks that were read last are kept here and
 * shared, so that a thousand readers that stand still cost no more than one.
 */
export class LineReader {
  readonly #pieces = new Map<string, Buffer>();

  /**
   * Returns the line that begins at `offset`, or undefined where there is none or half of one. Bytes behind `endsAt`
   * are not a line yet.
   */
  async line(path: string, offset: number, endsAt: number): Promise<Line | undefined> {
    const parts: Buffer[] = [];
    for (let at = offset; at < endsAt;) {
      const start = at - (at % pieceBytes);
      const piece = (await this.#piece(path, start, endsAt)).subarray(at - start);
      const end = piece.indexOf("\n");
      parts.push(end < 0 ? piece : piece.subarray(0, end));
      if (end >= 0) return { text: Buffer.concat(parts).toString("utf8"), next: at + end + 1 };
      at += piece.byteLength;
      if (at % pieceBytes !== 0 || piece.byteLength === 0) return undefined;
    }
    return undefined;
  }

  async #piece(path: string, start: number, endsAt: number): Promise<Buffer> {
    const name = `${path}:${start}`;
    const piece = this.#pieces.get(name) ?? (await readPiece(path, start));
    this.#pieces.delete(name);
    const isWhole = piece.byteLength === pieceBytes && start + pieceBytes <= endsAt;
    if (isWhole) this.#pieces.set(name, piece);
    const [oldest] = this.#pieces.keys();
    if (this.#pieces.size > mostPieces && oldest !== undefined) this.#pieces.delete(oldest);
    return piece;
  }
}

async function readPiece(path: string, start: number): Promise<Buffer> {
  const file = await open(path, "r");
  try {
    const buffer = Buffer.allocUnsafeSlow(pieceBytes);
    let filled = 0;
    for (;;) {
      const { bytesRead } = await file.read(buffer, filled, pieceBytes - filled, start + filled);
      filled += bytesRead;
      if (bytesRead === 0 || filled === pieceBytes) return buffer.subarray(0, filled);
    }
  } finally {
    await file.close();
  }
}
