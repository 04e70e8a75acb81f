/**
 * A store's name for one version of an object: a generation, an ETag, a file name. Opaque. Every write gives a new one,
 * also a write of the same bytes.
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
  /** `absent`: write only if there is no object with this key. A version: write only if it is still the present one. */
  if?: "absent" | ObjectVersion;
}

export interface CallOptions {
  signal?: AbortSignal;
}

/** The size and digest that a big object must have. */
export interface Checksum {
  /** The digest in lower-case hex. */
  sha256: string;
  sizeBytes: number;
}

export interface SweepOptions extends CallOptions {
  /**
   * Whether the users of this store upload to such a key. A bucket does not record whose an unfinished upload is, so an
   * abandoned one is removed only if its key passes this test. Without the test none is.
   */
  isOurs?: (key: string) => boolean;
}

export interface UploadOptions extends CallOptions, WriteCondition, Checksum {
  /** Called with the number of bytes that the store has so far: never less than before, and `sizeBytes` at the end. */
  onProgress?: (storedBytes: number) => void;
}

export interface ByteRange {
  offset: number;
  length: number;
}

/**
 * Keys are `/`-separated, without empty, `.` or `..` parts. A write is visible completely or not at all, and once it
 * has resolved it survives a loss of power as far as the store can promise that. An object that does not exist reads as
 * `undefined`, and removing it succeeds.
 *
 * Rejects with
 * - `conflict` when a condition does not hold, but never because this very write has taken effect;
 * - `not_found` when `download` or `read` is asked for an object that does not exist;
 * - `storage_failed` with `details.expected` and `details.actual` when bytes are not the expected ones;
 * - `no_space` when the store is full, `unavailable` when it may work again soon, else `storage_failed`. After these a
 * write may or may not have taken place: read before writing again under a condition;
 * - the reason of `signal` when that is aborted.
 */
export interface ObjectStore {
  /** Names the store and its place in messages, without secrets. */
  readonly place: string;
  /** Reads a small object whole. One of more than `maxSmallObjectBytes` is `invalid_argument`, as in `put`. */
  get(key: string, options?: CallOptions): Promise<{ data: Buffer; info: ObjectInfo } | undefined>;
  put(key: string, data: Uint8Array, options?: CallOptions & WriteCondition): Promise<ObjectInfo>;
  stat(key: string, options?: CallOptions): Promise<ObjectInfo | undefined>;
  /** Returns whether an object was there. Under a condition a missing object is a conflict. */
  remove(key: string, options?: CallOptions & { if?: ObjectVersion }): Promise<boolean>;
  /**
   * Lists all objects whose key starts with `prefix`, in the order of the bytes of keys, however many there are.
   * Objects of other programs under names that no key can have are left out.
   */
  list(prefix: string, options?: CallOptions): AsyncIterable<ObjectInfo>;
  /** Uploads a file as a big object: in parallel pieces, each retried, and never whole in memory. */
  upload(key: string, path: string, options: UploadOptions): Promise<ObjectInfo>;
  /** Downloads to a file that does not exist yet (else `already_exists`); it appears when its checksum is right. */
  download(key: string, path: string, options: CallOptions & Checksum): Promise<void>;
  /**
   * Reads a range of an object as a stream, all of it of one version. There are no bytes past the end, and that is no
   * error. The caller must iterate, to the end or out of the loop.
   */
  read(key: string, range: ByteRange, options?: CallOptions): Promise<AsyncIterable<Buffer>>;
  /** Proves by trying that conditions work here. Rejects with `unsupported` and what was seen when they do not. */
  probe(options?: CallOptions): Promise<void>;
  /**
   * Removes what dead writers left behind, and nothing that a living writer uses or that is not known to be of a store
   * like this. Returns how many things were removed.
   */
  sweep(options?: SweepOptions): Promise<number>;
  /** Closes connections and the like. It must not be called during other calls. */
  close(): Promise<void>;
}

export const maxSmallObjectBytes = 4 << 20;
