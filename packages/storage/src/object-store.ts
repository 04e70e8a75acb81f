/**
 * What one version of an object is called by its store: a generation, an ETag, a name. Opaque. Every write gives a new
 * one, also one of the same bytes.
 */
export type ObjectVersion = string & { readonly __brand: "ObjectVersion" };

export interface ObjectInfo {
  key: string;
  sizeBytes: number;
  version: ObjectVersion;
  modifiedAtMs: number;
}

/** Without a condition a write replaces whatever is there. */
export interface WriteCondition {
  /** `absent`: only if no object has this key. A version: only if it is still the one. */
  if?: "absent" | ObjectVersion;
}

export interface CallOptions {
  signal?: AbortSignal;
}

/** What a big object must turn out to be. */
export interface Checksum {
  /** Lower-case hex. */
  sha256: string;
  sizeBytes: number;
}

export interface SweepOptions extends CallOptions {
  /**
   * Whether the users of this store upload to such a key. Uploads to a bucket do not say whose they are: one that
   * nobody ends is given up only where its key does. Without it none is.
   */
  isOurs?: (key: string) => boolean;
}

export interface UploadOptions extends CallOptions, WriteCondition, Checksum {
  /** Called with how many bytes the store has so far: never less than before, and `sizeBytes` at the end. */
  onProgress?: (storedBytes: number) => void;
}

export interface ByteRange {
  offset: number;
  length: number;
}

/**
 * Keys are `/`-separated, without empty, `.` or `..` parts. A write is visible completely or not at all, and once it
 * has resolved it survives a loss of power as far as the store can promise it. An object that is not there reads as
 * `undefined` and removes without complaint.
 *
 * Rejects with
 * - `conflict` when a condition does not hold; never because of the very write that was asked for;
 * - `not_found` when `download` or `read` is asked for an object that is not there;
 * - `storage_failed` with `details.expected` and `details.actual` when bytes are not what they must be;
 * - `no_space` when the store is full, `unavailable` when it may work again soon, else `storage_failed`.
 *   After these a write may or may not have taken place: read before writing again under a condition;
 * - the reason of `signal` when that is aborted.
 */
export interface ObjectStore {
  /** For messages: names the store and its place, no secrets. */
  readonly place: string;
  /** Small objects, whole. At most `maxSmallObjectBytes`: a bigger one is `invalid_argument`, as in `put`. */
  get(key: string, options?: CallOptions): Promise<{ data: Buffer; info: ObjectInfo } | undefined>;
  put(key: string, data: Uint8Array, options?: CallOptions & WriteCondition): Promise<ObjectInfo>;
  stat(key: string, options?: CallOptions): Promise<ObjectInfo | undefined>;
  /** True when an object was there. Under a condition an object that is not there is a conflict. */
  remove(key: string, options?: CallOptions & { if?: ObjectVersion }): Promise<boolean>;
  /**
   * All whose key starts with these characters, in order of the bytes of keys, however many there are. What others put
   * there under names that no key can have is passed over.
   */
  list(prefix: string, options?: CallOptions): AsyncIterable<ObjectInfo>;
  /** Big objects, from a file: in parallel pieces, each tried again, and never whole in memory. */
  upload(key: string, path: string, options: UploadOptions): Promise<ObjectInfo>;
  /** Big objects, to a file that does not exist yet (else `already_exists`); it appears when its checksum is right. */
  download(key: string, path: string, options: CallOptions & Checksum): Promise<void>;
  /**
   * A piece of an object as a stream, all of it of one version. Past the end there are no bytes, and that is no error.
   * Whoever asks must iterate, to the end or out of the loop.
   */
  read(key: string, range: ByteRange, options?: CallOptions): Promise<AsyncIterable<Buffer>>;
  /** Proves by trying that conditions hold here. Rejects with `unsupported` and what was seen when they do not. */
  probe(options?: CallOptions): Promise<void>;
  /**
   * Removes what writers that died left behind, and nothing that a living one is at or that is not known to be of a
   * store like this. Tells how many things went.
   */
  sweep(options?: SweepOptions): Promise<number>;
  /** Lets go of connections and the like. Not while operations are under way. */
  close(): Promise<void>;
}

export const maxSmallObjectBytes = 4 << 20;
