import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { deadlineAfter, firstToAbort, isSandboxError, type SandboxError } from "@atoll/protocol";
import type { Bucket, File } from "@google-cloud/storage";
import { orAborted } from "../bucket/outcomes.ts";
import { retried } from "../bucket/retry.ts";
import { storeFailure } from "../bucket/store-failure.ts";
import type { ByteRange } from "../object-store.ts";
import { uuidForm } from "../uuid-form.ts";
import { statusOf, toGcsFailure } from "./gcs-failure.ts";

/** A generation, `0` for "no object", or undefined for no condition. */
export interface GcsCondition {
  ifGenerationMatch?: string;
}

/** Metadata that a writer stores with its bytes. By `write` it recognises its own object later. */
export interface GcsMark {
  write: string;
  /** The object stands for a removed one, until it is deleted itself. */
  removed?: "yes";
}

export interface GcsEntry {
  name: string;
  sizeBytes: number;
  generation: string;
  modifiedAtMs: number;
  write: string | undefined;
  isRemoved: boolean;
}

interface GcsMetadata {
  generation?: string | number;
  size?: string | number;
  updated?: string;
  metadata?: Record<string, unknown>;
}

interface GcsPage {
  kind?: string;
  items?: ({ name: string } & GcsMetadata)[];
  nextPageToken?: string;
}

const writeIdForm = new RegExp(`^${uuidForm}$`);
const contentType = "application/octet-stream";
/** The limit for one request with all its bytes; without it the client can wait for the rest of an answer for ever. */
const answerWithinMs = 120_000;
const canPass = (error: unknown): boolean => isSandboxError(error, "unavailable");

/**
 * The requests that an object store makes of one bucket, with failures as `SandboxError`. They are retried here and not
 * by the client, whose own retries cannot be aborted.
 */
export class GcsBucket {
  readonly place: string;
  readonly #bucket: Bucket;
  readonly #attempts: number;
  readonly #silentWithinMs: number;

  constructor(bucket: Bucket, place: string, options: { maxAttempts: number; silentWithinMs: number }) {
    this.place = place;
    this.#bucket = bucket;
    this.#attempts = options.maxAttempts;
    this.#silentWithinMs = options.silentWithinMs;
  }

  /** The store compares what arrives with the checksum in the request. */
  put(name: string, data: Uint8Array, condition: GcsCondition, mark: GcsMark, signal: AbortSignal): Promise<GcsEntry> {
    const md5Hash = md5(data);
    return this.#ask(`write ${name}`, signal, async () => {
      const file = this.#bucket.file(name);
      const stream = file.createWriteStream({
        resumable: false,
        validation: false,
        preconditionOpts: condition,
        metadata: { contentType, md5Hash, metadata: { ...mark } },
      });
      await pipeline(Readable.from(Buffer.from(data)), stream, { signal });
      return this.#entry(name, file.metadata);
    });
  }

  /** One resumable upload: an attempt that breaks off continues at the byte that the store has reached. */
  async putPiece(name: string, data: Buffer, signal: AbortSignal): Promise<void> {
    const md5Hash = md5(data);
    let session: string | undefined;
    await this.#ask(`upload ${name}`, signal, async () => {
      const stream = this.#bucket.file(name).createWriteStream({
        resumable: true,
        validation: false,
        metadata: { contentType, contentLength: data.length, md5Hash },
        ...(session === undefined ? {} : { uri: session }),
      });
      stream.on("uri", (uri: string) => {
        session = uri;
      });
      await pipeline(Readable.from(data), stream, { signal }).catch((error: unknown) => {
        if (session === undefined || !isOver(error)) throw error;
        // The session is over, perhaps because an attempt whose answer was lost ended it: the piece is sent again.
        session = undefined;
        throw storeFailure("unreachable", { place: this.place, doing: `upload ${name}`, said: "session is over" });
      });
    });
  }

  /** Makes one object of up to 32 others, inside the store. */
  compose(
    sources: readonly string[],
    name: string,
    condition: GcsCondition,
    mark: GcsMark,
    signal: AbortSignal,
  ): Promise<GcsEntry> {
    return this.#ask(`put together ${name}`, signal, async () => {
      const [metadata] = await this.#bucket.file(name).request({
        method: "POST",
        uri: "/compose",
        qs: condition,
        json: {
          destination: { contentType, metadata: mark },
          sourceObjects: sources.map((source) => ({ name: source })),
        },
      });
      return this.#entry(name, metadata);
    });
  }

  head(name: string, signal: AbortSignal): Promise<GcsEntry> {
    return this.#ask(`look at ${name}`, signal, async () => {
      const [metadata] = await this.#bucket.file(name).getMetadata();
      return this.#entry(name, metadata);
    });
  }

  remove(name: string, condition: GcsCondition, signal: AbortSignal): Promise<void> {
    return this.#ask(`remove ${name}`, signal, async () => {
      await this.#bucket.file(name).delete(condition);
    });
  }

  async *list(prefix: string, signal: AbortSignal): AsyncGenerator<GcsEntry, void, undefined> {
    let pageToken: string | undefined;
    do {
      const qs = { prefix, ...(pageToken === undefined ? {} : { pageToken }) };
      const page = await this.#ask(`list ${prefix}`, signal, async () => {
        const [answer] = await this.#bucket.request({ uri: "/o", qs });
        return this.#page(answer);
      });
      yield* page.entries;
      pageToken = page.next;
    } while (pageToken !== undefined);
  }

  /**
   * Makes one attempt. A refusal of the store comes as a `SandboxError`; the error of a stream that breaks off is
   * passed on unchanged.
   */
  async *read(
    name: string,
    generation: string,
    range: ByteRange,
    signal: AbortSignal,
  ): AsyncGenerator<Buffer, void, undefined> {
    const file: File = this.#bucket.file(name, { generation });
    const stream = file.createReadStream({
      start: range.offset,
      end: range.offset + range.length - 1,
      validation: false,
      decompress: false,
    });
    const stop = () => stream.destroy(signal.reason as Error);
    signal.addEventListener("abort", stop, { once: true });
    try {
      yield* unlessSilent(stream, this.#silentWithinMs, signal);
    } catch (error) {
      if (signal.aborted || statusOf(error) === undefined) throw error;
      throw toGcsFailure(error, this.place, `read ${name}`, signal);
    } finally {
      signal.removeEventListener("abort", stop);
      stream.destroy();
    }
  }

  /**
   * A proxy on the way may answer with status 200, for example with a page to log in: an answer without the fields that
   * every answer has is refused.
   */
  #entry(name: string, metadata: unknown): GcsEntry {
    const { generation, size } = (metadata ?? {}) as GcsMetadata;
    if (isNumber(generation) && isNumber(size)) return entryOf(name, metadata as GcsMetadata);
    throw this.#strange("an object without a generation or a size");
  }

  #page(answer: unknown): { entries: GcsEntry[]; next: string | undefined } {
    const { kind, items, nextPageToken } = (answer ?? {}) as GcsPage;
    // An empty list may have no items.
    if (!Array.isArray(items) && kind !== "storage#objects") throw this.#strange("a malformed list");
    const entries = (items ?? []).map((item) => this.#entry(item.name, item));
    return { entries, next: nextPageToken };
  }

  #strange(said: string): SandboxError {
    return storeFailure("unreachable", { place: this.place, doing: "use the answer", said });
  }

  #ask<T>(doing: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    return retried(this.#attempts, signal, canPass, async () => {
      try {
        signal.throwIfAborted();
        return await orAborted(work(), firstToAbort(signal, deadlineAfter(answerWithinMs)));
      } catch (error) {
        throw toGcsFailure(error, this.place, doing, signal);
      }
    });
  }
}

/** The client does not notice when a connection ends in the middle of a body, so silence counts as the end. */
async function* unlessSilent(stream: Readable, silentWithinMs: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  const chunks = stream[Symbol.asyncIterator]();
  for (;;) {
    const silence = setTimeout(() => {
      stream.destroy(new Error(`No byte came for ${silentWithinMs} ms`));
    }, silentWithinMs);
    const next = await chunks.next().finally(() => clearTimeout(silence));
    if (next.done === true) return;
    signal.throwIfAborted();
    yield next.value as Buffer;
  }
}

const isOver = (error: unknown): boolean => [400, 404, 410].includes(statusOf(error) ?? 0);

const isNumber = (value: unknown): boolean => /^\d{1,19}$/.test(String(value));

const md5 = (data: Uint8Array): string => createHash("md5").update(data).digest("base64");

/** Whether all parts are as `GcsObjectStore` writes them: other programs may mark their own objects as removed. */
function isMarkOfRemoval({ size, metadata }: GcsMetadata): boolean {
  return metadata?.["removed"] === "yes" && writeIdForm.test(String(metadata["write"])) && Number(size ?? 0) === 0;
}

function entryOf(name: string, metadata: GcsMetadata): GcsEntry {
  const write = metadata.metadata?.["write"];
  return {
    name,
    sizeBytes: Number(metadata.size ?? 0),
    generation: String(metadata.generation ?? ""),
    modifiedAtMs: Date.parse(metadata.updated ?? "") || 0,
    write: typeof write === "string" ? write : undefined,
    isRemoved: isMarkOfRemoval(metadata),
  };
}
