import { randomUUID } from "node:crypto";
import { constants, open, readFile } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import * as checks from "./call-checks.ts";
import { copyBytes } from "./file/copy-bytes.ts";
import { land } from "./file/landing.ts";
import { assertObjectKey } from "./object-key.ts";
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
} from "./object-store.ts";

/**
 * A bucket that is also mounted as a directory. Big objects are read through the mount, where caches and other disks
 * make that worth while; if the mount is behind, the checksum differs, and the bucket itself is asked. All other calls
 * go to the bucket: a mount neither honours conditions nor makes objects appear atomically. So the mount may be
 * read-only.
 */
export class MountedObjectStore implements ObjectStore {
  readonly place: string;
  readonly #bucket: ObjectStore;
  readonly #mount: string;

  /** `mount` is the directory in which the object `a/b` of the bucket is the file `a/b`. */
  constructor(bucket: ObjectStore, mount: string) {
    if (!isAbsolute(mount)) {
      throw new SandboxError("invalid_argument", `Cannot read objects in ${JSON.stringify(mount)}`, {
        suggestion: "Give the absolute path at which the bucket is mounted.",
      });
    }
    this.place = `${bucket.place}, mounted at ${mount}`;
    this.#bucket = bucket;
    this.#mount = mount;
  }

  async download(key: string, path: string, options: CallOptions & Checksum): Promise<void> {
    assertObjectKey(key);
    checks.assertChecksum(key, options);
    options.signal?.throwIfAborted();
    try {
      await this.#downloadFromMount(key, path, options);
    } catch {
      options.signal?.throwIfAborted();
      // Whatever was wrong with the mount, the bucket decides, and its errors are the ones to act on.
      await this.#bucket.download(key, path, options);
    }
  }

  async #downloadFromMount(key: string, path: string, options: CallOptions & Checksum): Promise<void> {
    const file = await open(join(this.#mount, key), constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
    try {
      await land(path, async (temporary) => {
        // Some stores append a few bytes of their own to those of the object.
        checks.assertSameBytes(key, options, await copyBytes(file, temporary, options));
      });
    } finally {
      await file.close();
    }
  }

  async probe(options: CallOptions = {}): Promise<void> {
    await this.#bucket.probe(options);
    const key = `probe/${randomUUID()}`;
    const content = Buffer.from(key);
    await this.#bucket.put(key, content, { ...options, if: "absent" });
    try {
      const seen = await readFile(join(this.#mount, key)).catch(() => Buffer.alloc(0));
      if (!seen.subarray(0, content.length).equals(content)) {
        throw new SandboxError(
          "unsupported",
          `Cannot use ${this.place}: a new object of the bucket is not visible in the mount`,
          {
            suggestion: "Mount the same bucket, below the same prefix, or leave the mount out.",
            details: { place: this.place },
          },
        );
      }
    } finally {
      await this.#bucket.remove(key);
    }
  }

  get(key: string, options?: CallOptions): Promise<{ data: Buffer; info: ObjectInfo } | undefined> {
    return this.#bucket.get(key, options);
  }

  put(key: string, data: Uint8Array, options?: CallOptions & WriteCondition): Promise<ObjectInfo> {
    return this.#bucket.put(key, data, options);
  }

  stat(key: string, options?: CallOptions): Promise<ObjectInfo | undefined> {
    return this.#bucket.stat(key, options);
  }

  remove(key: string, options?: CallOptions & { if?: ObjectVersion }): Promise<boolean> {
    return this.#bucket.remove(key, options);
  }

  list(prefix: string, options?: CallOptions): AsyncIterable<ObjectInfo> {
    return this.#bucket.list(prefix, options);
  }

  upload(key: string, path: string, options: UploadOptions): Promise<ObjectInfo> {
    return this.#bucket.upload(key, path, options);
  }

  read(key: string, range: ByteRange, options?: CallOptions): Promise<AsyncIterable<Buffer>> {
    return this.#bucket.read(key, range, options);
  }

  sweep(options?: SweepOptions): Promise<number> {
    return this.#bucket.sweep(options);
  }

  close(): Promise<void> {
    return this.#bucket.close();
  }
}
