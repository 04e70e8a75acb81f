import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { GuestFiles } from "@atoll/engine";
import { errorBody, errorReply } from "../http/error-reply.ts";
import { openDownload } from "../http/open-download.ts";
import { guardAgainstSlowness } from "../http/slow-requests.ts";
import { invalidUrl, type FileGrant, type UrlSigner } from "./url-signer.ts";

type SignedAccess = Pick<GuestFiles, "read" | "write" | "stat">;

export interface SignedFilesOptions {
  signer: UrlSigner;
  /**
   * Acquires the sandbox. Rejects when it does not exist, does not run, or a client other than the signer holds it. It
   * is not idle until `leave` is called.
   */
  acquire(grant: FileGrant): Promise<{ files: SignedAccess; leave: () => void }>;
  /** Returns a signal that is aborted when this API key is revoked, or was revoked before. */
  untilRevoked(keyId: string): AbortSignal;
  /** How long a client that uploads may send nothing. */
  bodyTimeoutMs: number;
  /** Called at the end of each use. */
  onUse?(use: { grant: FileGrant; bytes: number; error?: unknown }): void;
}

/**
 * Serves signed URLs: GET and HEAD read the file or a range of it, PUT replaces it. A page from a sandbox must not run
 * as a page of this server, so every file is sent as an attachment.
 */
export class SignedFiles {
  #options: SignedFilesOptions;

  constructor(options: SignedFilesOptions) {
    this.#options = options;
  }

  /** Handles a request. Returns false if it is not for a signed URL. */
  handle(request: IncomingMessage, response: ServerResponse): boolean {
    if (!this.#options.signer.isSigned(request.url ?? "")) return false;
    this.#answer(request, response).catch((error: unknown) => refuse(response, error));
    return true;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const grant = this.#options.signer.verify(request.method ?? "", request.url ?? "");
    const revoked = grant.keyId === undefined ? undefined : this.#options.untilRevoked(grant.keyId);
    if (revoked?.aborted === true) throw invalidUrl();
    const disconnect = (): void => void response.destroy();
    revoked?.addEventListener("abort", disconnect);
    try {
      await this.#serve(grant, request, response);
    } finally {
      revoked?.removeEventListener("abort", disconnect);
    }
  }

  async #serve(grant: FileGrant, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const counted = { bytes: 0 };
    const { bodyTimeoutMs } = this.#options;
    guardAgainstSlowness(request, response, true, { bodyTimeoutMs });
    try {
      const { files, leave } = await this.#options.acquire(grant);
      try {
        await (grant.method === "PUT" ? put : get)(files, grant, { request, response, counted });
      } finally {
        leave();
      }
      this.#options.onUse?.({ grant, ...counted });
    } catch (error) {
      this.#options.onUse?.({ grant, ...counted, error });
      throw error;
    }
  }
}

interface SignedRequest {
  request: IncomingMessage;
  response: ServerResponse;
  counted: { bytes: number };
}

async function get(
  files: SignedAccess,
  { path, user }: FileGrant,
  { request, response, counted }: SignedRequest,
): Promise<void> {
  const gone = new AbortController();
  response.once("close", () => gone.abort(new Error("The client went away")));
  const { range, "if-range": ifRange } = request.headers;
  const asked = { user, signal: gone.signal, range, ifRange: Array.isArray(ifRange) ? undefined : ifRange };
  const download = await openDownload(files, path, asked);
  const { pieces, sizeBytes = 0 } = download;
  const isHead = request.method === "HEAD";
  response.writeHead(download.status, {
    "content-type": "application/octet-stream",
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    // Some files, as in /proc, have content although their size is 0.
    ...(isHead && sizeBytes > 0 ? { "content-length": String(sizeBytes) } : {}),
    ...download.headers,
  });
  if (isHead) {
    await pieces[Symbol.asyncIterator]().return?.();
    response.end();
    return;
  }
  async function* all(): AsyncGenerator<Uint8Array> {
    for await (const piece of pieces) yield counting(piece, counted);
  }
  await pipeline(Readable.from(all(), { objectMode: false }), response);
}

async function put(
  files: SignedAccess,
  { path, user }: FileGrant,
  { request, response, counted }: SignedRequest,
): Promise<void> {
  async function* all(): AsyncGenerator<Buffer> {
    for await (const piece of request as AsyncIterable<Buffer>) yield counting(piece, counted);
  }
  await files.write(path, all(), { user });
  response.writeHead(204, { "cache-control": "no-store" }).end();
}

function counting<T extends Uint8Array>(piece: T, counted: { bytes: number }): T {
  counted.bytes += piece.byteLength;
  return piece;
}

function refuse(response: ServerResponse, thrown: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const { status, error, headers = {} } = errorReply(thrown);
  // The rest of a body would be taken for the next request.
  response.writeHead(status, { ...headers, "content-type": "application/json; charset=utf-8", connection: "close" });
  response.end(JSON.stringify(errorBody(error, randomUUID())));
}
