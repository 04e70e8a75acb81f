import { constants, writevSync } from "node:fs";
import { open, stat, truncate, type FileHandle } from "node:fs/promises";
import type { OutputPosition } from "@atoll/engine";
import { encodeRecordHeader, maxRecordBytes, parseRecord, recordHeaderBytes, type OutputPiece } from "./log-record.ts";

/** The size is enough for the longest record, so that every read gets at least one. */
const readBytes = maxRecordBytes + recordHeaderBytes;

/** A piece up to this length is written synchronously: passing it to another thread takes longer than writing it. */
const synchronousBytes = 16 * 1024;

/** One file of a command's log: records that follow each other without a gap. */
export class LogSegment {
  readonly path: string;
  /** The `at` of its first byte. */
  readonly startAt: number;
  /** The number of bytes of output in it. */
  dataBytes = 0;
  /** The number of bytes of whole records in the file. Bytes that a crash left behind them are overwritten. */
  fileBytes = 0;
  #writer: FileHandle | undefined;

  constructor(path: string, startAt: number) {
    this.path = path;
    this.startAt = startAt;
  }

  get endAt(): number {
    return this.startAt + this.dataBytes;
  }

  /**
   * Appends a piece. Calls must not overlap. When it rejects, nothing has been added: the next call overwrites what is
   * there.
   */
  async append(piece: OutputPiece): Promise<void> {
    this.#writer ??= await open(this.path, constants.O_RDWR | constants.O_CREAT, 0o600);
    const buffers = [encodeRecordHeader(piece), piece.data];
    const length = recordHeaderBytes + piece.data.byteLength;
    let written = 0;
    while (written < length) {
      const rest = written === 0 ? buffers : [Buffer.concat(buffers).subarray(written)];
      written += await writeAt(this.#writer, rest, length, this.fileBytes + written);
    }
    this.fileBytes += length;
    this.dataBytes += piece.data.byteLength;
  }

  /** Closes the file for writing; readers have their own. */
  async close(): Promise<void> {
    const writer = this.#writer;
    this.#writer = undefined;
    await writer?.close();
  }

  /** Takes a segment as whole without reading it, because another one follows it. */
  async adopt(endAt: number): Promise<void> {
    this.dataBytes = endAt - this.startAt;
    this.fileBytes = (await stat(this.path)).size;
  }

  /**
   * Counts what is there, up to the first incomplete record, and cuts the rest off. Returns the position behind the
   * last whole record.
   */
  async recover(): Promise<OutputPosition | undefined> {
    let last: OutputPiece | undefined;
    this.fileBytes = 0;
    this.dataBytes = 0;
    const file = await open(this.path, "r");
    try {
      for (;;) {
        const pieces = await readPieces(file, this.fileBytes, readBytes);
        let taken = 0;
        for (const piece of pieces) {
          if (piece.at !== this.endAt) break;
          taken += 1;
          this.fileBytes += recordHeaderBytes + piece.data.byteLength;
          this.dataBytes += piece.data.byteLength;
          last = piece;
        }
        if (taken === 0 || taken < pieces.length) break;
      }
    } finally {
      await file.close();
    }
    await truncate(this.path, this.fileBytes);
    return last === undefined ? undefined : positionBehind(last);
  }
}

/** Returns the whole records from `position` on that lie within the next `bytes` bytes. */
export async function readPieces(file: FileHandle, position: number, bytes: number): Promise<OutputPiece[]> {
  const buffer = Buffer.allocUnsafeSlow(Math.min(bytes, readBytes));
  let filled = 0;
  while (filled < buffer.byteLength) {
    const { bytesRead } = await file.read(buffer, filled, buffer.byteLength - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  const pieces: OutputPiece[] = [];
  const whole = buffer.subarray(0, filled);
  for (let next = 0; ;) {
    const piece = parseRecord(whole, next);
    if (piece === undefined) return pieces;
    pieces.push(piece);
    next += recordHeaderBytes + piece.data.byteLength;
  }
}

function positionBehind({ stream, at, offset, data }: OutputPiece): OutputPosition {
  const endAt = at + data.byteLength;
  const ownBytes = offset + data.byteLength;
  return stream === "stdout"
    ? { stdoutBytes: ownBytes, stderrBytes: endAt - ownBytes }
    : { stdoutBytes: endAt - ownBytes, stderrBytes: ownBytes };
}

/** Returns how many bytes were written. */
async function writeAt(file: FileHandle, buffers: Buffer[], length: number, position: number): Promise<number> {
  if (length <= synchronousBytes) return writevSync(file.fd, buffers, position);
  return (await file.writev(buffers, position)).bytesWritten;
}
