import { createHash } from "node:crypto";
import type { Readable } from "node:stream";
import type { SandboxError } from "@atoll/protocol";
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type S3Client,
  UploadPartCommand,
} from "@aws-sdk/client-s3";
import { storeFailure } from "../bucket/store-failure.ts";
import { toS3Failure } from "./s3-failure.ts";

/** `IfMatch` is sent exactly as given. */
export interface S3Condition {
  IfNoneMatch?: "*";
  IfMatch?: string;
}

/** An entry of the bucket as the store reports it: sizes include what the envelope adds. */
export interface StoredEntry {
  name: string;
  storedBytes: number;
  /** The ETag, without quotes. */
  etag: string;
  modifiedAtMs: number;
}

interface Answered {
  /** The `Date` of the store's answer: S3 does not return the time of a write. */
  answeredAtMs: number;
}

/**
 * The requests that an object store makes of one bucket, with failures as `SandboxError`. Names are complete; no prefix
 * is added.
 */
export class S3Bucket {
  readonly place: string;
  readonly #client: S3Client;
  readonly #bucket: string;

  constructor(client: S3Client, bucket: string, place: string) {
    this.place = place;
    this.#client = client;
    this.#bucket = bucket;
    client.middlewareStack.add(
      (next) => async (args) => {
        const result = await next(args);
        const { headers } = result.response as { headers?: Record<string, string> };
        const answeredAtMs = Date.parse(headers?.["date"] ?? "");
        Object.assign(result.output as object, {
          answeredAtMs: Number.isNaN(answeredAtMs) ? Date.now() : answeredAtMs,
        });
        return result;
      },
      { step: "deserialize", priority: "high", name: "answeredAt" },
    );
  }

  async put(name: string, data: Buffer, condition: S3Condition, signal: AbortSignal): Promise<StoredEntry> {
    const input = { Bucket: this.#bucket, Key: name, Body: data, ContentLength: data.length, ...condition };
    const output = await this.#ask(`write ${name}`, signal, (options) =>
      this.#client.send(new PutObjectCommand(input), options),
    );
    return { name, storedBytes: data.length, etag: this.#etag(output.ETag), modifiedAtMs: output.answeredAtMs };
  }

  /**
   * Makes one attempt, because a stream cannot be sent twice. The store compares what arrives with the signed checksum.
   */
  async putStream(
    name: string,
    body: Readable,
    checksum: { sha256: string; sizeBytes: number },
    condition: S3Condition,
    signal: AbortSignal,
  ): Promise<StoredEntry> {
    const input = { Bucket: this.#bucket, Key: name, Body: body, ContentLength: checksum.sizeBytes, ...condition };
    const command = new PutObjectCommand(input);
    command.middlewareStack.add(
      (next) => (args) => {
        Object.assign((args.request as { headers: object }).headers, { "x-amz-content-sha256": checksum.sha256 });
        return next(args);
      },
      { step: "build", name: "knownChecksum" },
    );
    const output = await this.#ask(`write ${name}`, signal, (options) => this.#client.send(command, options));
    const etag = this.#etag(output.ETag);
    return { name, storedBytes: checksum.sizeBytes, etag, modifiedAtMs: output.answeredAtMs };
  }

  async head(name: string, signal: AbortSignal): Promise<StoredEntry> {
    const output = await this.#ask(`look at ${name}`, signal, (options) =>
      this.#client.send(new HeadObjectCommand({ Bucket: this.#bucket, Key: name }), options),
    );
    return this.#entry(name, output.ContentLength, output.ETag, output.LastModified);
  }

  /** `range` has the form of that header. The entry describes the whole object. */
  async get(
    name: string,
    range: string | undefined,
    signal: AbortSignal,
  ): Promise<{ entry: StoredEntry; body: Readable }> {
    const output = await this.#ask(`read ${name}`, signal, (options) =>
      this.#client.send(
        new GetObjectCommand({ Bucket: this.#bucket, Key: name, ...(range === undefined ? {} : { Range: range }) }),
        options,
      ),
    );
    const total = /\/(\d+)$/.exec(output.ContentRange ?? "")?.[1];
    const storedBytes = total === undefined ? output.ContentLength : Number(total);
    // In Node the client's body is a stream of Node.
    const body = output.Body as Readable;
    try {
      return { entry: this.#entry(name, storedBytes, output.ETag, output.LastModified), body };
    } catch (error) {
      body.destroy();
      throw error;
    }
  }

  async remove(name: string, condition: { IfMatch?: string }, signal: AbortSignal): Promise<void> {
    const input = { Bucket: this.#bucket, Key: name, ...condition };
    await this.#ask(`remove ${name}`, signal, (options) => this.#client.send(new DeleteObjectCommand(input), options));
  }

  async *list(prefix: string, signal: AbortSignal): AsyncGenerator<StoredEntry, void, undefined> {
    let token: string | undefined;
    do {
      const page = {
        Bucket: this.#bucket,
        Prefix: prefix,
        ...(token === undefined ? {} : { ContinuationToken: token }),
      };
      const output = await this.#ask(`list ${prefix}`, signal, (options) =>
        this.#client.send(new ListObjectsV2Command(page), options),
      );
      // Every list says whether it continues, and where.
      const isWhole = output.IsTruncated === false || output.NextContinuationToken !== undefined;
      if (!isWhole) throw this.#strange("a malformed list");
      for (const { Key, Size, ETag, LastModified } of output.Contents ?? []) {
        if (Key !== undefined) yield this.#entry(Key, Size, ETag, LastModified);
      }
      token = output.IsTruncated === true ? output.NextContinuationToken : undefined;
    } while (token !== undefined);
  }

  async createUpload(name: string, signal: AbortSignal): Promise<string> {
    const output = await this.#ask(`begin to upload ${name}`, signal, (options) =>
      this.#client.send(new CreateMultipartUploadCommand({ Bucket: this.#bucket, Key: name }), options),
    );
    if (output.UploadId === undefined) throw this.#strange("an upload without an id");
    return output.UploadId;
  }

  async uploadPart(name: string, uploadId: string, part: number, data: Buffer, signal: AbortSignal): Promise<string> {
    const input = { Bucket: this.#bucket, Key: name, UploadId: uploadId, PartNumber: part, Body: data };
    const output = await this.#ask(`upload part ${part} of ${name}`, signal, (options) =>
      this.#client.send(new UploadPartCommand({ ...input, ContentLength: data.length }), options),
    );
    return this.#etag(output.ETag);
  }

  async completeUpload(
    name: string,
    uploadId: string,
    etags: readonly string[],
    condition: S3Condition,
    signal: AbortSignal,
  ): Promise<StoredEntry> {
    const Parts = etags.map((etag, index) => ({ PartNumber: index + 1, ETag: `"${etag}"` }));
    const input = { Bucket: this.#bucket, Key: name, UploadId: uploadId, MultipartUpload: { Parts }, ...condition };
    const output = await this.#ask(`finish the upload of ${name}`, signal, (options) =>
      this.#client.send(new CompleteMultipartUploadCommand(input), options),
    );
    if ((output.ETag ?? output.Key) === undefined) throw this.#strange("a malformed answer to the end of an upload");
    // Ceph's gateway does not return the ETag here. It is made of those of the parts, like Amazon's.
    const etag = bare(output.ETag) === "" ? etagOfParts(etags) : bare(output.ETag);
    return { name, storedBytes: 0, etag, modifiedAtMs: output.answeredAtMs };
  }

  async abortUpload(name: string, uploadId: string, signal: AbortSignal): Promise<void> {
    const input = { Bucket: this.#bucket, Key: name, UploadId: uploadId };
    await this.#ask(`abort the upload of ${name}`, signal, (options) =>
      this.#client.send(new AbortMultipartUploadCommand(input), options),
    );
  }

  async *listUploads(
    prefix: string,
    signal: AbortSignal,
  ): AsyncGenerator<{ name: string; uploadId: string; beganAtMs: number }, void, undefined> {
    let from: { KeyMarker?: string; UploadIdMarker?: string } = {};
    for (;;) {
      const output = await this.#ask(`list uploads to ${prefix}`, signal, (options) =>
        this.#client.send(new ListMultipartUploadsCommand({ Bucket: this.#bucket, Prefix: prefix, ...from }), options),
      );
      for (const { Key, UploadId, Initiated } of output.Uploads ?? []) {
        if (Key === undefined || UploadId === undefined) continue;
        yield { name: Key, uploadId: UploadId, beganAtMs: Initiated?.getTime() ?? Date.now() };
      }
      if (output.IsTruncated !== true || output.NextKeyMarker === undefined) return;
      from = { KeyMarker: output.NextKeyMarker, UploadIdMarker: output.NextUploadIdMarker ?? "" };
    }
  }

  close(): void {
    this.#client.destroy();
  }

  async #ask<Output>(
    doing: string,
    signal: AbortSignal,
    send: (options: { abortSignal: AbortSignal }) => Promise<Output>,
  ): Promise<Output & Answered> {
    try {
      signal.throwIfAborted();
      return (await send({ abortSignal: signal })) as Output & Answered;
    } catch (error) {
      throw toS3Failure(error, this.place, doing, signal);
    }
  }

  /**
   * A proxy on the way may answer with status 200, for example with a page to log in: an answer without the fields that
   * every answer has is refused.
   */
  #entry(
    name: string,
    storedBytes: number | undefined,
    etag: string | undefined,
    modified: Date | undefined,
  ): StoredEntry {
    if (storedBytes === undefined) throw this.#strange("an object without a size");
    return { name, storedBytes, etag: this.#etag(etag), modifiedAtMs: modified?.getTime() ?? 0 };
  }

  #etag(etag: string | undefined): string {
    if (bare(etag) === "") throw this.#strange("an object without an ETag");
    return bare(etag);
  }

  #strange(said: string): SandboxError {
    return storeFailure("unreachable", { place: this.place, doing: "use the answer", said });
  }
}

function etagOfParts(etags: readonly string[]): string {
  const hashes = Buffer.concat(etags.map((etag) => Buffer.from(etag, "hex")));
  return `${createHash("md5").update(hashes).digest("hex")}-${etags.length}`;
}

const bare = (etag: string | undefined): string => (etag ?? "").replaceAll('"', "");
