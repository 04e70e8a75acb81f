import { createHash } from "node:crypto";
import { link, open, rm, writeFile } from "node:fs/promises";
import { SandboxError } from "@atoll/protocol";
import * as checks from "../../src/call-checks.ts";
import {
  assertObjectKey,
  assertObjectPrefix,
  probeConditions,
  type ByteRange,
  type CallOptions,
  type Checksum,
  type ObjectInfo,
  type ObjectStore,
  type ObjectVersion,
  type UploadOptions,
  type WriteCondition,
} from "../../src/index.ts";

interface Stored {
  data: Buffer;
  info: ObjectInfo;
}

/** Objects in a map, for tests of what is built on stores. Writes happen in the order of their calls. */
export class MemoryObjectStore implements ObjectStore {
  readonly place = "memory";
  readonly #objects = new Map<string, Stored>();
  #writes = 0;

  async get(key: string, options: CallOptions = {}): Promise<Stored | undefined> {
    const stored = this.#find(key, options);
    if (stored === undefined) return undefined;
    checks.assertSmallObject(key, stored.data.length);
    return { data: Buffer.from(stored.data), info: { ...stored.info } };
  }

  async put(key: string, data: Uint8Array, options: CallOptions & WriteCondition = {}): Promise<ObjectInfo> {
    checks.assertSmallObject(key, data.length);
    return this.#write(key, Buffer.from(data), options);
  }

  async stat(key: string, options: CallOptions = {}): Promise<ObjectInfo | undefined> {
    const stored = this.#find(key, options);
    return stored === undefined ? undefined : { ...stored.info };
  }

  async remove(key: string, options: CallOptions & { if?: ObjectVersion } = {}): Promise<boolean> {
    const stored = this.#find(key, options);
    if (options.if !== undefined && stored?.info.version !== options.if) throw checks.conflict(key);
    return this.#objects.delete(key);
  }

  async *list(prefix: string, options: CallOptions = {}): AsyncIterable<ObjectInfo> {
    assertObjectPrefix(prefix);
    for (const key of [...this.#objects.keys()].toSorted((one, two) => (one < two ? -1 : 1))) {
      options.signal?.throwIfAborted();
      const stored = this.#objects.get(key);
      if (stored !== undefined && key.startsWith(prefix)) yield { ...stored.info };
    }
  }

  async upload(key: string, path: string, options: UploadOptions): Promise<ObjectInfo> {
    assertObjectKey(key);
    checks.assertChecksum(key, options);
    const data = await readWhole(path, options.onProgress);
    checks.assertSameBytes(key, options, checksumOf(data));
    return this.#write(key, data, options);
  }

  async download(key: string, path: string, options: CallOptions & Checksum): Promise<void> {
    checks.assertChecksum(key, options);
    const stored = this.#find(key, options);
    if (stored === undefined) throw checks.notFound(key, this.place);
    checks.assertSameBytes(key, options, checksumOf(stored.data));
    const landing = `${path}.landing`;
    try {
      await writeFile(landing, stored.data);
      options.signal?.throwIfAborted();
      await link(landing, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      throw new SandboxError("already_exists", `Cannot download to ${path}: it exists`, { cause: error });
    } finally {
      await rm(landing, { force: true });
    }
  }

  async read(key: string, range: ByteRange, options: CallOptions = {}): Promise<AsyncIterable<Buffer>> {
    const stored = this.#find(key, options);
    checks.assertByteRange(key, range);
    if (stored === undefined) throw checks.notFound(key, this.place);
    return pieces(stored.data.subarray(range.offset, range.offset + range.length), options);
  }

  probe(options?: CallOptions): Promise<void> {
    return probeConditions(this, options);
  }

  async sweep(): Promise<number> {
    return 0;
  }

  async close(): Promise<void> {}

  #find(key: string, options: CallOptions): Stored | undefined {
    assertObjectKey(key);
    options.signal?.throwIfAborted();
    return this.#objects.get(key);
  }

  #write(key: string, data: Buffer, options: CallOptions & WriteCondition): ObjectInfo {
    const version = this.#find(key, options)?.info.version;
    if (options.if !== undefined && options.if !== (version ?? "absent")) throw checks.conflict(key);
    this.#writes += 1;
    const info = {
      key,
      sizeBytes: data.length,
      version: `memory-${this.#writes}` as ObjectVersion,
      modifiedAtMs: Date.now(),
    };
    this.#objects.set(key, { data, info });
    return { ...info };
  }
}

const pieceBytes = 1 << 20;

async function* pieces(data: Buffer, options: CallOptions): AsyncIterable<Buffer> {
  for (let offset = 0; offset < data.length; offset += pieceBytes) {
    options.signal?.throwIfAborted();
    yield Buffer.from(data.subarray(offset, offset + pieceBytes));
  }
}

async function readWhole(path: string, onProgress?: (storedBytes: number) => void): Promise<Buffer> {
  const refuse = (cause?: unknown) => new SandboxError("invalid_argument", `Cannot upload ${path}`, { cause });
  const file = await open(path, "r").catch((error: unknown) => {
    throw refuse(error);
  });
  try {
    if (!(await file.stat()).isFile()) throw refuse();
    const data = await file.readFile();
    for (let stored = 0; stored < data.length; stored += pieceBytes) onProgress?.(stored);
    onProgress?.(data.length);
    return data;
  } finally {
    await file.close();
  }
}

function checksumOf(data: Buffer): Checksum {
  return { sha256: createHash("sha256").update(data).digest("hex"), sizeBytes: data.length };
}
