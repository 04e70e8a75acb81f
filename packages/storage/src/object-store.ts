/** What one version of an object is called by its store: a generation, an ETag, a hash. Opaque; equal only for the same version. */
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

export interface UploadOptions extends CallOptions, WriteCondition {
  /** Lower-case hex. What arrives is compared with it before the object becomes visible. */
  sha256: string;
  sizeBytes: number;
  /** Called with how many bytes the store has so far. */
  onProgress?: (storedBytes: number) => void;
}

export interface ByteRange {
  offset: number;
  length: number;
}

/**
 * Keys are `/`-separated, without empty, `.` or `..` parts. A write is visible completely or not at all, and once it has resolved it survives a
 * loss of power as far as the store can promise it. A condition that does not hold rejects with code `conflict`; an object that is not
 * there reads as `undefined` and removes without complaint. Everything else that goes wrong is `unavailable` (try again) or `storage_failed`.
 */
export interface ObjectStore {
  /** For messages: names the store and its place, no secrets. */
  readonly place: string;
  /** Small objects, whole. At most `maxSmallObjectBytes`. */
  get(key: string, options?: CallOptions): Promise<{ data: Buffer; info: ObjectInfo } | undefined>;
  put(key: string, data: Uint8Array, options?: CallOptions & WriteCondition): Promise<ObjectInfo>;
  stat(key: string, options?: CallOptions): Promise<ObjectInfo | undefined>;
  /** True when an object was there. */
  remove(key: string, options?: CallOptions & { if?: ObjectVersion }): Promise<boolean>;
  /** In order of keys, however many there are. */
  list(prefix: string, options?: CallOptions): AsyncIterable<ObjectInfo>;
  /** Big objects, from a file: in parallel pieces, each tried again, and never whole in memory. */
  upload(key: string, path: string, options: UploadOptions): Promise<ObjectInfo>;
  /** Big objects, to a file that does not exist yet; it appears when its checksum is right. */
  download(key: string, path: string, options: CallOptions & { sha256: string; sizeBytes: number }): Promise<void>;
  /** A piece of an object as a stream, for readers that do not want all of it. */
  read(key: string, range: ByteRange, options?: CallOptions): Promise<AsyncIterable<Buffer>>;
  /** Proves by trying that conditions hold here. Rejects with `unsupported` and what was seen when they do not. */
  probe(options?: CallOptions): Promise<void>;
}

export const maxSmallObjectBytes = 4 << 20;
