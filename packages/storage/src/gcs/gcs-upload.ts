import { randomUUID } from "node:crypto";
import { deadlineAfter } from "@atoll/protocol";
import type { Gate } from "../bucket/gate.ts";
import { readWhole, sendFile } from "../bucket/send-file.ts";
import type { UploadOptions } from "../object-store.ts";
import type { GcsBucket, GcsEntry } from "./gcs-bucket.ts";
import { newMark, writeIf } from "./gcs-write.ts";

interface UploadCall {
  bucket: GcsBucket;
  gate: Gate;
  pieceBytes: number;
  key: string;
  name: string;
  /** Where pieces are until they are put together. */
  partsPrefix: string;
  signal: AbortSignal;
}

/** As many as the store puts together at once. */
const mostSources = 32;
/** For what has to be removed after the caller has gone. */
const removeWithinMs = 30_000;

export async function uploadToGcs(call: UploadCall, path: string, options: UploadOptions): Promise<GcsEntry> {
  return options.sizeBytes <= call.pieceBytes ? uploadWhole(call, path, options) : uploadPieces(call, path, options);
}

/** A file that is one piece: nothing of it is sent before it was the right one. */
async function uploadWhole(call: UploadCall, path: string, options: UploadOptions): Promise<GcsEntry> {
  const { bucket, name, signal } = call;
  const leave = await call.gate.enter(signal);
  try {
    const data = await readWhole(path, options, signal);
    const mark = newMark();
    const entry = await writeIf(call, options.if, mark, (condition) => bucket.put(name, data, condition, mark, signal));
    options.onProgress?.(options.sizeBytes);
    return entry;
  } finally {
    leave();
  }
}

/**
 * Each piece is an object of its own until all are there and the file was the right one; then they become one at once.
 */
async function uploadPieces(call: UploadCall, path: string, options: UploadOptions): Promise<GcsEntry> {
  const { bucket, name, signal } = call;
  const folder = `${call.partsPrefix}${randomUUID()}/`;
  const made: string[] = [];
  const nextName = () => {
    const next = `${folder}${made.length}`;
    made.push(next);
    return next;
  };
  try {
    const pieces: string[] = [];
    let storedBytes = 0;
    await sendFile(path, options, call, async (piece, stop) => {
      const pieceName = nextName();
      pieces[piece.index] = pieceName;
      await bucket.putPiece(pieceName, piece.data, stop);
      storedBytes += piece.data.length;
      options.onProgress?.(storedBytes);
    });
    signal.throwIfAborted();
    let sources = pieces;
    while (sources.length > mostSources) {
      sources = await Promise.all(
        inGroups(sources, mostSources).map(async (group) => {
          const joined = nextName();
          await bucket.compose(group, joined, {}, newMark(), signal);
          return joined;
        }),
      );
    }
    const mark = newMark();
    return await writeIf(call, options.if, mark, (condition) => bucket.compose(sources, name, condition, mark, signal));
  } finally {
    await Promise.allSettled(made.map((each) => bucket.remove(each, {}, deadlineAfter(removeWithinMs))));
  }
}

function inGroups<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, index) =>
    items.slice(index * size, (index + 1) * size),
  );
}
