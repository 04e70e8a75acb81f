import { deadlineAfter, isSandboxError } from "@atoll/protocol";
import { Gate } from "../bucket/gate.ts";
import {
  absentAsUndefined,
  cutAsUnavailable,
  isCut,
  orAborted,
  replacedDuringRead,
  signalOf,
} from "../bucket/outcomes.ts";
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
import { isTrialUpload, learnTraits } from "./learn-traits.ts";
import type { S3Bucket, StoredEntry } from "./s3-bucket.ts";
import { openS3Bucket, type S3StoreOptions } from "./s3-client.ts";
import { isNoObject, isTombstone, mayBeTombstone, newSeal, newTombstone, sealBytes } from "./s3-envelope.ts";
import { matchHeader, type S3Traits } from "./s3-traits.ts";
import { uploadToS3 } from "./s3-upload.ts";
import { writeIf } from "./s3-write.ts";

const wholeReadAttempts = 4;
/** The result of the trial is shared, so no single caller's signal ends it. */
const learnWithinMs = 60_000;

/** Objects in a bucket of S3 or of a compatible server. It tries once what the server supports. */
export class S3ObjectStore implements ObjectStore {
  readonly place: string;
  readonly #bucket: S3Bucket;
  readonly #prefix: string;
  readonly #pieceBytes: number;
  readonly #sweepAfterMs: number;
  readonly #gate: Gate;
  #traits: Promise<S3Traits> | undefined;

  constructor(options: S3StoreOptions) {
    const opened = openS3Bucket(options);
    this.#bucket = opened.bucket;
    this.place = opened.bucket.place;
    this.#prefix = opened.prefix;
    this.#pieceBytes = opened.pieceBytes;
    this.#sweepAfterMs = opened.sweepAfterMs;
    this.#gate = new Gate(opened.parallel);
  }

  async get(key: string, options?: CallOptions): Promise<{ data: Buffer; info: ObjectInfo } | undefined> {
    const { name, signal } = this.#call(key, options);
    const found = await this.#uncut(name, signal, () => this.#readWhole(key, name, signal));
    if (found === undefined || isNoObject(found.entry.storedBytes)) return undefined;
    return { data: found.stored.subarray(0, -sealBytes), info: this.#info(found.entry) };
  }

  async put(key: string, data: Uint8Array, options?: CallOptions & WriteCondition): Promise<ObjectInfo> {
    const { name, signal } = this.#call(key, options);
    assertSmallObject(key, data.length);
    const seal = newSeal();
    const body = Buffer.concat([data, seal]);
    const write = { bucket: this.#bucket, traits: this.#learn, key, name, seal, signal };
    const entry = await writeIf(write, options?.if, (condition) => this.#bucket.put(name, body, condition, signal));
    return this.#info({ ...entry, storedBytes: body.length });
  }

  async stat(key: string, options?: CallOptions): Promise<ObjectInfo | undefined> {
    const { name, signal } = this.#call(key, options);
    const entry = await absentAsUndefined(() => this.#bucket.head(name, signal));
    return entry === undefined || isNoObject(entry.storedBytes) ? undefined : this.#info(entry);
  }

  async remove(key: string, options?: CallOptions & { if?: ObjectVersion }): Promise<boolean> {
    const { name, signal } = this.#call(key, options);
    if (options?.if !== undefined) return this.#removeIf(key, name, options.if, signal);
    const entry = await absentAsUndefined(() => this.#bucket.head(name, signal));
    if (entry === undefined) return false;
    await this.#bucket.remove(name, {}, signal);
    return !isNoObject(entry.storedBytes);
  }

  async *list(prefix: string, options?: CallOptions): AsyncGenerator<ObjectInfo, void, undefined> {
    assertObjectPrefix(prefix);
    const signal = signalOf(options);
    for await (const entry of this.#bucket.list(this.#prefix + prefix, signal)) {
      if (!isNoObject(entry.storedBytes) && isObjectKey(this.#keyOf(entry))) yield this.#info(entry);
      signal.throwIfAborted();
    }
  }

  async upload(key: string, path: string, options: UploadOptions): Promise<ObjectInfo> {
    const { name, signal } = this.#call(key, options);
    assertChecksum(key, options);
    const entry = await uploadToS3(
      { bucket: this.#bucket, traits: this.#learn, gate: this.#gate, pieceBytes: this.#pieceBytes, key, name, signal },
      path,
      options,
    );
    return this.#info({ ...entry, storedBytes: options.sizeBytes + sealBytes });
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
    const signal = signalOf(options);
    this.#traits = undefined;
    await this.#learn(signal);
    await probeConditions(this, { signal });
  }

  /**
   * Removes uploads that were abandoned, which are invisible but paid for. Where removals honour conditions, it removes
   * tombstones too.
   */
  async sweep(options: SweepOptions = {}): Promise<number> {
    const signal = signalOf(options);
    const before = Date.now() - this.#sweepAfterMs;
    const isOurs = (key: string): boolean => isTrialUpload(key) || (isObjectKey(key) && options.isOurs?.(key) === true);
    let swept = 0;
    for await (const upload of this.#bucket.listUploads(this.#prefix, signal)) {
      if (upload.beganAtMs >= before || !isOurs(this.#keyOf(upload))) continue;
      await absentAsUndefined(() => this.#bucket.abortUpload(upload.name, upload.uploadId, signal));
      swept++;
    }
    const traits = await this.#learn(signal);
    if (!traits.canRemoveIf) return swept;
    for await (const entry of this.#bucket.list(this.#prefix, signal)) {
      if (!mayBeTombstone(entry.storedBytes) || entry.modifiedAtMs >= before) continue;
      if (!isObjectKey(this.#keyOf(entry))) continue;
      const found = await this.#readTombstone(entry.name, signal);
      if (found !== undefined && (await this.#deleteTombstone(found, traits, signal))) swept++;
    }
    return swept;
  }

  async close(): Promise<void> {
    this.#bucket.close();
  }

  /** The client cannot continue a body that ends early. What is read in this way is small, so it is read again. */
  async #uncut<T>(name: string, signal: AbortSignal, read: () => Promise<T>): Promise<T | undefined> {
    try {
      return await absentAsUndefined(() => retried(wholeReadAttempts, signal, isCut, read));
    } catch (error) {
      throw cutAsUnavailable(error, this.place, `read ${name}`, signal);
    }
  }

  async #readWhole(key: string, name: string, signal: AbortSignal): Promise<{ entry: StoredEntry; stored: Buffer }> {
    const { entry, body } = await this.#bucket.get(name, undefined, signal);
    try {
      assertSmallObject(key, entry.storedBytes - sealBytes);
      return { entry, stored: Buffer.concat(await body.toArray()) };
    } finally {
      body.destroy();
    }
  }

  /**
   * Exactly one removal or write of a version succeeds: the one whose bytes, a tombstone's or an object's, replace it.
   */
  async #removeIf(key: string, name: string, version: ObjectVersion, signal: AbortSignal): Promise<boolean> {
    const tombstone = newTombstone();
    const write = { bucket: this.#bucket, traits: this.#learn, key, name, seal: tombstone, signal };
    const entry = await writeIf(write, version, (condition) => this.#bucket.put(name, tombstone, condition, signal));
    const traits = await this.#learn(signal);
    // The object is removed already; a sweep finds a tombstone that stays.
    if (traits.canRemoveIf) await this.#deleteTombstone(entry, traits, signal).catch(() => undefined);
    return true;
  }

  /**
   * Returns the present entry if it is a tombstone. An entry that the bucket does not let us read belongs to another
   * program, so it is not.
   */
  async #readTombstone(name: string, signal: AbortSignal): Promise<StoredEntry | undefined> {
    try {
      return await this.#uncut(name, signal, async () => {
        const { entry, body } = await this.#bucket.get(name, undefined, signal);
        try {
          if (!mayBeTombstone(entry.storedBytes)) return undefined;
          return isTombstone(Buffer.concat(await body.toArray())) ? entry : undefined;
        } finally {
          body.destroy();
        }
      });
    } catch (error) {
      if (isSandboxError(error, "storage_failed")) return undefined;
      throw error;
    }
  }

  async #deleteTombstone(tombstone: StoredEntry, traits: S3Traits, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#bucket.remove(tombstone.name, { IfMatch: matchHeader(tombstone.etag, traits.etagForm) }, signal);
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
    const bytes = resumedRead(range, signal, async ({ offset, length }) => {
      const { entry, body } = await this.#bucket.get(name, `bytes=${offset}-${offset + length - 1}`, signal);
      if (entry.etag === info.version) return body as AsyncIterable<Buffer>;
      body.destroy();
      throw replacedDuringRead(info.key, this.place);
    });
    try {
      yield* bytes;
    } catch (error) {
      throw cutAsUnavailable(error, this.place, `read ${name}`, signal);
    }
  }

  /** One trial at a time serves all callers; after a failure the next caller tries again. */
  readonly #learn = (signal: AbortSignal): Promise<S3Traits> => {
    const patience = deadlineAfter(learnWithinMs);
    this.#traits ??= learnTraits(this.#bucket, this.#prefix, patience).catch((error: unknown) => {
      this.#traits = undefined;
      throw error;
    });
    return orAborted(this.#traits, signal);
  };

  #call(key: string, options: CallOptions | undefined): { name: string; signal: AbortSignal } {
    assertObjectKey(key);
    const signal = signalOf(options);
    signal.throwIfAborted();
    return { name: this.#prefix + key, signal };
  }

  #keyOf({ name }: { name: string }): string {
    return name.slice(this.#prefix.length);
  }

  #info(entry: StoredEntry): ObjectInfo {
    return {
      key: this.#keyOf(entry),
      sizeBytes: entry.storedBytes - sealBytes,
      version: entry.etag as ObjectVersion,
      modifiedAtMs: entry.modifiedAtMs,
    };
  }
}
