import type { FileEntry, GuestFiles } from "@atoll/engine";
import { entityTag, parseRange, UnsatisfiableRange, type ByteRange } from "./byte-range.ts";
import { awaitFirstPiece } from "./keep-alive-lines.ts";

export interface DownloadRequest {
  user: string;
  signal: AbortSignal;
  /** The values of the request's headers. */
  range: string | undefined;
  ifRange: string | undefined;
}

export interface Download {
  status: 200 | 206;
  headers: Record<string, string>;
  /** The size, known for regular files. */
  sizeBytes?: number;
  pieces: AsyncIterable<Uint8Array>;
}

type Files = Pick<GuestFiles, "read" | "stat">;

/**
 * Opens a file, or the requested part of it. A part is only sent if the file is the one that `If-Range` names,
 * otherwise the whole file is: a client never combines parts of two files. Only regular files have parts, because the
 * size of others does not show what can be read.
 */
export async function openDownload(files: Files, path: string, request: DownloadRequest): Promise<Download> {
  const { user, signal } = request;
  const before = await files.stat(path, { user, signal });
  if (before.type !== "file") return whole(files, path, request);
  const tag = entityTag(before);
  const isWanted = request.ifRange === undefined || request.ifRange === tag;
  const range = isWanted ? parseRange(request.range, before.sizeBytes) : undefined;
  if (range === "unsatisfiable") throw new UnsatisfiableRange(before.sizeBytes);
  if (range === undefined) return whole(files, path, request, before);
  const pieces = await awaitFirstPiece(files.read(path, { user, signal, ...range }));
  // The file is open now. If another file replaced it after the first comparison, this one differs.
  if (request.ifRange !== undefined && entityTag(await files.stat(path, { user, signal })) !== tag) {
    await pieces[Symbol.asyncIterator]().return?.();
    return whole(files, path, request);
  }
  return { status: 206, headers: partHeaders(range, before.sizeBytes, tag), pieces };
}

async function whole(files: Files, path: string, request: DownloadRequest, entry?: FileEntry): Promise<Download> {
  const pieces = await awaitFirstPiece(files.read(path, { user: request.user, signal: request.signal }));
  if (entry === undefined) return { status: 200, headers: {}, pieces };
  const headers = { "accept-ranges": "bytes", etag: entityTag(entry) };
  return { status: 200, headers, sizeBytes: entry.sizeBytes, pieces };
}

function partHeaders({ offset, length }: ByteRange, sizeBytes: number, tag: string): Record<string, string> {
  return {
    "accept-ranges": "bytes",
    etag: tag,
    "content-range": `bytes ${offset}-${offset + length - 1}/${sizeBytes}`,
    "content-length": String(length),
  };
}
