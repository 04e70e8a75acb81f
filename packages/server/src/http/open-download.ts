import type { FileEntry, GuestFiles } from "@atoll/engine";
import { entityTag, parseRange, UnsatisfiableRange, type ByteRange } from "./byte-range.ts";
import { begun } from "./keep-alive-lines.ts";

export interface DownloadRequest {
  user: string;
  signal: AbortSignal;
  /** Of the request's headers. */
  range: string | undefined;
  ifRange: string | undefined;
}

export interface Download {
  status: 200 | 206;
  headers: Record<string, string>;
  /** Known where the file is a plain one that says its size. */
  sizeBytes?: number;
  pieces: AsyncIterable<Uint8Array>;
}

type Files = Pick<GuestFiles, "read" | "stat">;

/**
 * A file, or the part of it that was asked for. A part is of the file that `If-Range` names, or the whole file is
 * given: what a client puts together is never of two files. Only plain files have parts, for the size of others says
 * nothing about what is read.
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
  const pieces = await begun(files.read(path, { user, signal, ...range }));
  // The file is open now. One that took its place before is another than the one that was compared.
  if (request.ifRange !== undefined && entityTag(await files.stat(path, { user, signal })) !== tag) {
    await pieces[Symbol.asyncIterator]().return?.();
    return whole(files, path, request);
  }
  return { status: 206, headers: partHeaders(range, before.sizeBytes, tag), pieces };
}

async function whole(files: Files, path: string, request: DownloadRequest, entry?: FileEntry): Promise<Download> {
  const pieces = await begun(files.read(path, { user: request.user, signal: request.signal }));
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
