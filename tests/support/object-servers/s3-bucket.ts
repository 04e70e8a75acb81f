import { createHash, randomUUID } from "node:crypto";
import type { Answer } from "./object-server.ts";

/** The points in which servers differ. The default is what the S3 documentation promises. */
export interface S3Behaviour {
  /** With `early` the server checks conditions when a request arrives, not when it carries the request out. */
  putConditions: "kept" | "ignored" | "early";
  completeConditions: "kept" | "ignored";
  deleteConditions: "kept" | "ignored";
  /** A server with `bare` compares the header with its own etag, which has no quotes, character by character. */
  ifMatch: "quoted or bare" | "bare";
}

export class S3Refusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string) {
    super(code);
    this.status = status;
    this.code = code;
  }
}

type Headers = Record<string, string>;

interface StoredObject {
  data: Buffer;
  /** The etag with quotes, as it is sent. */
  etag: string;
  metadata: Headers;
  modifiedAtMs: number;
}

interface Upload {
  key: string;
  metadata: Headers;
  beganAtMs: number;
  parts: Map<number, { data: Buffer; etag: string }>;
}

/** All parts except the last must have at least this size, as in S3. */
const smallestPartBytes = 5 << 20;

const md5 = (data: Uint8Array) => createHash("md5").update(data).digest();
const unquoted = (etag: string) => etag.replaceAll('"', "");

export class S3Bucket {
  readonly objects = new Map<string, StoredObject>();
  readonly uploads = new Map<string, Upload>();
  readonly #behaviour: S3Behaviour;
  readonly #now: () => number;

  constructor(behaviour: Partial<S3Behaviour>, now: () => number) {
    this.#behaviour = {
      putConditions: "kept",
      completeConditions: "kept",
      deleteConditions: "kept",
      ifMatch: "quoted or bare",
      ...behaviour,
    };
    this.#now = now;
  }

  /** Returns the keys in the order of their bytes. */
  keys(): string[] {
    return [...this.objects.keys()].toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  }

  /** Accepts a write that has arrived. The returned function carries it out. */
  beginPut(key: string, data: Buffer, headers: Headers): () => StoredObject {
    try {
      if (this.#behaviour.putConditions === "early") this.#checkConditions(key, headers);
      return () => this.put(key, data, headers);
    } catch (error) {
      return () => {
        throw error as Error;
      };
    }
  }

  put(key: string, data: Buffer, headers: Headers): StoredObject {
    checkPayload(data, headers);
    if (this.#behaviour.putConditions === "kept") this.#checkConditions(key, headers);
    return this.#store(key, data, `"${md5(data).toString("hex")}"`, metadataOf(headers));
  }

  read(key: string, headers: Headers): Answer {
    const object = this.objects.get(key);
    if (object === undefined) throw new S3Refusal(404, "NoSuchKey");
    const size = object.data.length;
    const base = {
      etag: object.etag,
      "last-modified": new Date(object.modifiedAtMs).toUTCString(),
      "content-length": String(size),
      ...object.metadata,
    };
    if (headers["range"] === undefined) return { status: 200, headers: base, body: object.data };
    const { first, last } = readRange(headers["range"], size);
    if (first >= size) throw new S3Refusal(416, "InvalidRange");
    const body = object.data.subarray(first, last + 1);
    const place = { "content-range": `bytes ${first}-${last}/${size}`, "content-length": String(body.length) };
    return { status: 206, headers: { ...base, ...place }, body };
  }

  remove(key: string, headers: Headers): void {
    const expected = headers["if-match"];
    if (expected !== undefined && this.#behaviour.deleteConditions === "kept") {
      const object = this.objects.get(key);
      if (object === undefined) throw new S3Refusal(404, "NoSuchKey");
      if (!this.#isSame(expected, object.etag)) throw new S3Refusal(412, "PreconditionFailed");
    }
    this.objects.delete(key);
  }

  createUpload(key: string, headers: Headers): string {
    const uploadId = randomUUID();
    this.uploads.set(uploadId, { key, metadata: metadataOf(headers), beganAtMs: this.#now(), parts: new Map() });
    return uploadId;
  }

  putPart(uploadId: string, part: number, data: Buffer, headers: Headers): string {
    checkPayload(data, headers);
    const etag = `"${md5(data).toString("hex")}"`;
    this.#upload(uploadId).parts.set(part, { data, etag });
    return etag;
  }

  completeUpload(
    key: string,
    uploadId: string,
    wanted: readonly { part: number; etag: string }[],
    headers: Headers,
  ): StoredObject {
    const upload = this.#upload(uploadId);
    const parts = wanted.map(({ part, etag }, index) => {
      const found = upload.parts.get(part);
      if (found === undefined || unquoted(found.etag) !== unquoted(etag)) throw new S3Refusal(400, "InvalidPart");
      const isLast = index === wanted.length - 1;
      if (!isLast && found.data.length < smallestPartBytes) throw new S3Refusal(400, "EntityTooSmall");
      return found.data;
    });
    if (this.#behaviour.completeConditions === "kept") this.#checkConditions(key, headers);
    this.uploads.delete(uploadId);
    const etag = `"${md5(Buffer.concat(parts.map(md5))).toString("hex")}-${parts.length}"`;
    return this.#store(key, Buffer.concat(parts), etag, upload.metadata);
  }

  abortUpload(uploadId: string): void {
    this.#upload(uploadId);
    this.uploads.delete(uploadId);
  }

  #upload(uploadId: string): Upload {
    const upload = this.uploads.get(uploadId);
    if (upload === undefined) throw new S3Refusal(404, "NoSuchUpload");
    return upload;
  }

  #store(key: string, data: Buffer, etag: string, metadata: Headers): StoredObject {
    const object = { data, etag, metadata, modifiedAtMs: this.#now() };
    this.objects.set(key, object);
    return object;
  }

  #checkConditions(key: string, headers: Headers): void {
    const object = this.objects.get(key);
    if (headers["if-none-match"] === "*" && object !== undefined) throw new S3Refusal(412, "PreconditionFailed");
    const expected = headers["if-match"];
    if (expected === undefined) return;
    if (object === undefined) throw new S3Refusal(404, "NoSuchKey");
    if (!this.#isSame(expected, object.etag)) throw new S3Refusal(412, "PreconditionFailed");
  }

  #isSame(expected: string, etag: string): boolean {
    const said = this.#behaviour.ifMatch === "bare" ? expected : unquoted(expected);
    return said === unquoted(etag);
  }
}

/** Parses `bytes=first-last`, or `bytes=-n` for the last n bytes. */
function readRange(text: string, size: number): { first: number; last: number } {
  const [, first = "", last = ""] = /^bytes=(\d*)-(\d*)$/.exec(text) ?? [];
  if (first === "") return { first: Math.max(0, size - Number(last)), last: size - 1 };
  return { first: Number(first), last: Math.min(Number(last), size - 1) };
}

/** Checks the hash of the body in a signed request; S3 refuses another body. */
function checkPayload(data: Buffer, headers: Headers): void {
  const said = headers["x-amz-content-sha256"] ?? "";
  if (/^[0-9a-f]{64}$/.test(said) && createHash("sha256").update(data).digest("hex") !== said) {
    throw new S3Refusal(400, "XAmzContentSHA256Mismatch");
  }
}

function metadataOf(headers: Headers): Headers {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith("x-amz-meta-")));
}
