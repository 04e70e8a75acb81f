import { isSandboxError } from "@atoll/protocol";
import { Gate } from "../bucket/gate.ts";
import { absentAsUndefined, cutAsUnavailable, isReplaced, replacedDuringRead, signalOf } from "../bucket/outcomes.ts";
import { downloadObject, type ObjectSource, readObject } from "../bucket/read-object.ts";
import { resumedRead } from "../bucket/resumed-read.ts";
import { retried } from "../bucket/retry.ts";
import { assertChecksum, assertSmallObject } from "../call-checks.ts";
import { assertObjectKey, assertObjectPrefix, isObjectKey } from "../object-key.ts";
import type {
  ByteRange,
  CallOptions,
  Checksum,
  ObjectInfo,
  ObjectStore,
  ObjectVersion,
  SweepOptions,
  UploadOptions,
  WriteCondition,
} from "../object-store.ts";
import { probeConditions } from "../probe-conditions.ts";
import { uuidForm } from "../uuid-form.ts";
import type { GcsBucket, GcsEntry } from "./gcs-bucket.ts";
import { type GcsStoreOptions, openGcsBucket } from "./gcs-client.ts";
import { uploadToGcs } from "./gcs-upload.ts";
import { newMark, writeIf } from "./gcs-write.ts";

interface Target {
  bucket: GcsBucket;
  key: string;
  name: string;
  signal: AbortSignal;
}

/**
 * With many writers a version may be replaced before it is read, again and again; each time one of them has made
 * progress.
 */
const wholeReadAttempts = 100;
/** No key contains a tilde. */
const partsFolder = "~parts/";
const pieceForm = new RegExp(`^${partsFolder}${uuidForm}/\\d+$`);

/** Objects in a bucket of Google Cloud Storage. A version is a generation. */
export class GcsObjectStore implements ObjectStore {
  readonly place: string;
  readonly #bucket: GcsBucket;
  readonly #prefix: string;
  readonly #pieceBytes: number;
  readonly #sweepAfterMs: number;
  readonly #gate: Gate;

  constructor(options: GcsStoreOptions) {
    const opened = openGcsBucket(options);
    this.#bucket = opened.bucket;
    this.place = opened.bucket.place;
    this.#prefix = opened.prefix;
    this.#pieceBytes = opened.pieceBytes;
    this.#sweepAfterMs = opened.sweepAfterMs;
    this.#gate = new Gate(opened.parallel);
  }

  async get(key: string, options?: CallOptions): Promise<{ data: Buffer; info: ObjectInfo } | undefined> {
    const { signal } = this.#call(key, options);
    return retried(wholeReadAttempts, signal, isReplaced, async () => {
      const info = await this.stat(key, { signal });
      if (info === undefined) return undefined;
      assertSmallObject(key, info.sizeBytes);
      const chunks: Buffer[] = [];
      for await (const chunk of this.#bytes(info, { offset: 0, length: info.sizeBytes }, signal)) chunks.push(chunk);
      return { data: Buffer.concat(chunks), info };
    });
  }

  async put(key: string, data: Uint8Array, options?: CallOptions & WriteCondition): Promise<ObjectInfo> {
    const target = this.#call(key, options);
    assertSmallObject(key, data.length);
    const { name, signal } = target;
    // The bytes are copied, because the caller may change them once this has returned and they may be sent more than
    // once.
    const body = Buffer.from(data);
    const mark = newMark();
    const entry = await writeIf(target, options?.if, mark, (condition) =>
      this.#bucket.put(name, body, condition, mark, signal),
    );
    return this.#info(entry);
  }

  async stat(key: string, options?: CallOptions): Promise<ObjectInfo | undefined> {
    const { name, signal } = this.#call(key, options);
    const entry = await absentAsUndefined(() => this.#bucket.head(name, signal));
    return entry === undefined || entry.isRemoved ? undefined : this.#info(entry);
  }

  async remove(key: string, options?: CallOptions & { if?: ObjectVersion }): Promise<boolean> {
    const target = this.#call(key, options);
    const { name, signal } = target;
    if (options?.if !== undefined) return this.#removeIf(target, options.if);
    const entry = await absentAsUndefined(() => this.#bucket.head(name, signal));
    if (entry === undefined) return false;
    await absentAsUndefined(() => this.#bucket.remove(name, {}, signal));
    return !entry.isRemoved;
  }

  async *list(prefix: string, options?: CallOptions): AsyncGenerator<ObjectInfo, void, undefined> {
    assertObjectPrefix(prefix);
    const signal = signalOf(options);
    for await (const entry of this.#bucket.list(this.#prefix + prefix, signal)) {
      if (!entry.isRemoved && isObjectKey(this.#keyOf(entry))) yield this.#info(entry);
      signal.throwIfAborted();
    }
  }

  async upload(key: string, path: string, options: UploadOptions): Promise<ObjectInfo> {
    const target = this.#call(key, options);
    assertChecksum(key, options);
    const partsPrefix = this.#prefix + partsFolder;
    const call = { ...target, gate: this.#gate, pieceBytes: this.#pieceBytes, partsPrefix };
    return this.#info(await uploadToGcs(call, path, options));
  }

  async download(key: string, path: string, options: CallOptions & Checksum): Promise<void> {
    const { signal } = this.#call(key, options);
    const transfer = { pieceBytes: this.#pieceBytes, gate: this.#gate, signal };
    await downloadObject(this.#source(key, signal), path, options, transfer);
  }

  async read(key: string, range: ByteRange, options?: CallOptions): Promise<AsyncIterable<Buffer>> {
    const { signal } = this.#call(key, options);
    return readObject(this.#source(key, signal), range, signal);
  }

  async probe(options?: CallOptions): Promise<void> {
    await probeConditions(this, options);
  }

  /** Removes pieces of abandoned uploads, and what stood for removed objects. Both are marked as Atoll's. */
  async sweep(options?: SweepOptions): Promise<number> {
    const signal = signalOf(options);
    const before = Date.now() - this.#sweepAfterMs;
    let swept = 0;
    for await (const entry of this.#bucket.list(this.#prefix, signal)) {
      const key = this.#keyOf(entry);
      const isLeft = (entry.isRemoved && isObjectKey(key)) || pieceForm.test(key);
      if (isLeft && entry.modifiedAtMs < before && (await this.#deleteTombstone(entry, signal))) swept++;
    }
    return swept;
  }

  async close(): Promise<void> {
    // The client's connections belong to the whole process and end by themselves.
  }

  /**
   * A deletion whose answer is lost cannot be distinguished from another client's. So the version is first replaced by
   * a mark of our own, which decides who removed it; then the mark is deleted.
   */
  async #removeIf(target: Target, version: ObjectVersion): Promise<boolean> {
    const { name, signal } = target;
    const mark = { ...newMark(), removed: "yes" as const };
    const entry = await writeIf(target, version, mark, (condition) =>
      this.#bucket.put(name, Buffer.alloc(0), condition, mark, signal),
    );
    // The object is removed already; a sweep finds a mark that stays.
    await this.#deleteTombstone(entry, signal).catch(() => undefined);
    return true;
  }

  async #deleteTombstone(entry: GcsEntry, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#bucket.remove(entry.name, { ifGenerationMatch: entry.generation }, signal);
      return true;
    } catch (error) {
      if (isSandboxError(error, "conflict") || isSandboxError(error, "not_found")) return false;
      throw error;
    }
  }

  #source(key: string, signal: AbortSignal): ObjectSource {
    return {
      key,
      place: this.place,
      stat: () => this.stat(key, { signal }),
      bytes: (info, range, stop) => this.#bytes(info, range, stop),
    };
  }

  async *#bytes(info: ObjectInfo, range: ByteRange, signal: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
    const name = this.#prefix + info.key;
    try {
      yield* resumedRead(range, signal, async (rest) => this.#bucket.read(name, info.version, rest, signal));
    } catch (error) {
      // A generation that was replaced is gone.
      if (isSandboxError(error, "not_found")) throw replacedDuringRead(info.key, this.place);
      throw cutAsUnavailable(error, this.place, `read ${name}`, signal);
    }
  }

  #call(key: string, options: CallOptions | undefined): Target {
    assertObjectKey(key);
    const signal = signalOf(options);
    signal.throwIfAborted();
    return { bucket: this.#bucket, key, name: this.#prefix + key, signal };
  }

  #keyOf({ name }: GcsEntry): string {
    return name.slice(this.#prefix.length);
  }

  #info(entry: GcsEntry): ObjectInfo {
    return {
      key: this.#keyOf(entry),
      sizeBytes: entry.sizeBytes,
      version: entry.generation as ObjectVersion,
      modifiedAtMs: entry.modifiedAtMs,
    };
  }
}
