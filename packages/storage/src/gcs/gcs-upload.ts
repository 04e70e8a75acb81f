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
  /** Where the pieces are until they are composed. */
  partsPrefix: string;
  signal: AbortSignal;
}

/** The most objects that the store composes at once. */
const maxSources = 32;
/** The limit for a removal after the caller has gone. */
const removeWithinMs = 30_000;

export async function uploadToGcs(call: UploadCall, path: string, options: UploadOptions): Promise<GcsEntry> {
  return options.sizeBytes <= call.pieceBytes ? uploadWhole(call, path, options) : uploadPieces(call, path, options);
}

/** Uploads a file that is one piece. No byte is sent before the file has the expected bytes. */
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
 * Uploads each piece as an object of its own. When all are there and the file had the expected bytes, they become one
 * object at once.
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
    while (sources.length > maxSources) {
      sources = await Promise.all(
        inGroups(sources, maxSources).map(async (group) => {
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
