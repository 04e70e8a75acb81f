import { open, type FileHandle } from "node:fs/promises";
import { SandboxError } from "@atoll/protocol";
import type { CommandLog } from "./command-log.ts";
import type { OutputPiece } from "./log-record.ts";
import { recordHeaderBytes } from "./log-record.ts";
import { readPieces, type LogSegment } from "./log-segment.ts";

/** What a follower of a log gets: output, or the place and number of bytes that are no longer there. */
export type LogPiece = ({ type: "output" } & OutputPiece) | { type: "dropped"; at: number; bytes: number };

export interface FollowOptions {
  /** The number of bytes of the common order that the reader has. */
  from?: number;
  signal?: AbortSignal | undefined;
  /** The number of rollbacks as the command reported it when the bytes before `from` were read. */
  rollbacks?: number | undefined;
  /** If false, reading ends at the current end of the log. */
  follow?: boolean;
}

/**
 * Replays a log from any byte, then follows it to the end of the command. Each byte comes once, in order; a gap is
 * reported as `dropped`. A slow reader delays no other: what it has not read is on disk, and when that is dropped, the
 * reader gets a `dropped` piece.
 */
export async function* followLog(
  log: CommandLog,
  { from = 0, signal, follow = true }: FollowOptions,
): AsyncGenerator<LogPiece, void, void> {
  if (from > log.endAt) {
    throw new SandboxError("invalid_argument", `Cannot read from byte ${from}: only ${log.endAt} are there`, {
      details: { endAt: log.endAt },
    });
  }
  let at = from;
  const cursor = new SegmentCursor();
  const stopAt = follow ? Number.POSITIVE_INFINITY : log.endAt;
  try {
    while (at < stopAt) {
      signal?.throwIfAborted();
      log.assertNotRolledBack();
      if (at === log.endAt) {
        if (log.isComplete) return;
        await log.changed(signal);
        continue;
      }
      const newest = log.newestWith(at);
      if (newest !== undefined) {
        yield outputFrom(newest, at);
        at = newest.at + newest.data.byteLength;
        continue;
      }
      const segment = log.segmentFrom(at);
      const nextAt = segment?.startAt ?? log.endAt;
      if (segment === undefined || at < nextAt) {
        yield { type: "dropped", at, bytes: nextAt - at };
        at = nextAt;
        continue;
      }
      const pieces = await cursor.read(segment);
      if (pieces === undefined && log.segmentFrom(at) === segment) {
        throw new SandboxError("sandbox_ended", "Cannot read the output further: it was removed with its sandbox");
      }
      if (pieces?.length === 0) {
        // The bytes at this place are not a record: the disk did not keep what was written.
        yield { type: "dropped", at, bytes: segment.endAt - at };
        at = segment.endAt;
      }
      for (const piece of pieces ?? []) {
        const endAt = piece.at + piece.data.byteLength;
        if (endAt <= at) continue;
        yield outputFrom(piece, at);
        at = endAt;
      }
    }
  } finally {
    await cursor.close();
  }
}

function outputFrom(piece: OutputPiece, at: number): LogPiece {
  const skipped = at - piece.at;
  return { type: "output", ...piece, at, offset: piece.offset + skipped, data: piece.data.subarray(skipped) };
}

/** Reads one segment after another, each from its beginning without a break. */
class SegmentCursor {
  #segment: LogSegment | undefined;
  #file: FileHandle | undefined;
  #position = 0;

  /**
   * Reads the next pieces. It returns `undefined` if the file of the segment is gone, and an empty array if the rest of
   * it is damaged.
   */
  async read(segment: LogSegment): Promise<OutputPiece[] | undefined> {
    if (this.#segment !== segment) {
      await this.close();
      try {
        this.#file = await open(segment.path, "r");
      } catch (error) {
        if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
        throw error;
      }
      this.#segment = segment;
      this.#position = 0;
    }
    if (this.#file === undefined) throw new Error("The segment is not open");
    const pieces = await readPieces(this.#file, this.#position, segment.fileBytes - this.#position);
    for (const { data } of pieces) this.#position += recordHeaderBytes + data.byteLength;
    return pieces;
  }

  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    this.#segment = undefined;
    await file?.close();
  }
}
