import { stat, writeFile } from "node:fs/promises";
import { isAbsolute, join, resolve } from "node:path";
import { SandboxError } from "@atoll/protocol";
import * as checks from "../call-checks.ts";
import { assertObjectKey, assertObjectPrefix } from "../object-key.ts";
import type {
  ByteRange,
  CallOptions,
  Checksum,
  ObjectInfo,
  ObjectStore,
  ObjectVersion,
  UploadOptions,
  WriteCondition,
} from "../object-store.ts";
import { probeConditions } from "../probe-conditions.ts";
import { copyBytes } from "./copy-bytes.ts";
import { makeDirectory } from "./durable-directory.ts";
import { fileFailure } from "./file-failure.ts";
import { land } from "./landing.ts";
import { assertLayout } from "./layout-mark.ts";
import { infoOf, openBytes, readRange, statBytes } from "./object-bytes.ts";
import type { ObjectDirectory } from "./object-directory.ts";
import { ObjectTree } from "./object-tree.ts";
import { openSource } from "./open-source.ts";
import { sweepTree } from "./sweep-tree.ts";
import { isVersion } from "./version.ts";
import { writeBytes } from "./write-bytes.ts";
import { Writer } from "./writer.ts";

type Write = CallOptions & WriteCondition;

/**
 * Objects on a local disk, which any number of processes of one machine may use at once. There are no locks: each
 * change is one system call that exactly one of many callers can succeed with, so a process that dies or is stopped
 * never blocks another.
 */
export class FileObjectStore implements ObjectStore {
  readonly place: string;
  readonly #path: string;
  readonly #tree: ObjectTree;
  readonly #writersDir: string;
  #writer: Promise<Writer> | undefined;

  private constructor(path: string) {
    this.place = `the directory ${path}`;
    this.#path = path;
    this.#tree = new ObjectTree(join(path, "objects"));
    this.#writersDir = join(path, "writers");
  }

  static async open(path: string): Promise<FileObjectStore> {
    if (!isAbsolute(path) || path.includes("\0")) {
      throw new SandboxError("invalid_argument", `Cannot keep objects in ${JSON.stringify(path)}`, {
        suggestion: "Give the absolute path of a directory.",
      });
    }
    const store = new FileObjectStore(resolve(path));
    try {
      await makeDirectory(store.#tree.root);
      await makeDirectory(store.#writersDir);
      await assertLayout(store.#path);
    } catch (error) {
      throw fileFailure(`keep objects in ${store.place}`, error);
    }
    return store;
  }

  async get(key: string, options: CallOptions = {}): Promise<{ data: Buffer; info: ObjectInfo } | undefined> {
    return this.#at("read", key, options, async (directory) => {
      const bytes = await openBytes(key, directory);
      if (bytes === undefined) return undefined;
      try {
        checks.assertSmallObject(key, bytes.info.sizeBytes);
        return { data: await bytes.file.readFile(), info: bytes.info };
      } finally {
        await bytes.file.close();
      }
    });
  }

  async put(key: string, data: Uint8Array, options: Write = {}): Promise<ObjectInfo> {
    checks.assertSmallObject(key, data.length);
    const copy = Buffer.from(data);
    return this.#at("write", key, options, (directory) =>
      this.#write(key, directory, options, (path) => writeFile(path, copy, { flag: "wx", mode: 0o600 })),
    );
  }

  async stat(key: string, options: CallOptions = {}): Promise<ObjectInfo | undefined> {
    return this.#at("read", key, options, (directory) => statBytes(key, directory));
  }

  async remove(key: string, options: CallOptions & { if?: ObjectVersion } = {}): Promise<boolean> {
    return this.#at("remove", key, options, async (directory) => {
      if (options.if !== undefined) {
        if (isVersion(options.if) && (await directory.remove(options.if))) return true;
        throw checks.conflict(key);
      }
      for (;;) {
        options.signal?.throwIfAborted();
        const version = await directory.current();
        if (version === undefined) return false;
        if (await directory.remove(version)) return true;
      }
    });
  }

  async *list(prefix: string, options: CallOptions = {}): AsyncIterable<ObjectInfo> {
    assertObjectPrefix(prefix);
    options.signal?.throwIfAborted();
    try {
      for await (const { key, directory } of this.#tree.walk(prefix)) {
        options.signal?.throwIfAborted();
        const info = await statBytes(key, directory);
        if (info !== undefined) yield info;
      }
    } catch (error) {
      throw fileFailure(`list objects in ${this.place}`, error);
    }
  }

  async upload(key: string, path: string, options: UploadOptions): Promise<ObjectInfo> {
    checks.assertChecksum(key, options);
    return this.#at("write", key, options, async (directory) => {
      const source = await openSource(path);
      try {
        checks.assertSameSize(key, options, source.sizeBytes);
        return await this.#write(key, directory, options, async (target) => {
          const copied = await copyBytes(source.file, target, options);
          checks.assertSameBytes(key, options, copied);
        });
      } finally {
        await source.file.close();
      }
    });
  }

  async download(key: string, path: string, options: CallOptions & Checksum): Promise<void> {
    checks.assertChecksum(key, options);
    await this.#at("read", key, options, async (directory) => {
      const bytes = await openBytes(key, directory);
      if (bytes === undefined) throw checks.notFound(key, this.place);
      try {
        checks.assertSameSize(key, options, bytes.info.sizeBytes);
        await land(path, async (temporary) => {
          const copied = await copyBytes(bytes.file, temporary, options);
          checks.assertSameBytes(key, options, copied);
        });
      } finally {
        await bytes.file.close();
      }
    });
  }

  async read(key: string, range: ByteRange, options: CallOptions = {}): Promise<AsyncIterable<Buffer>> {
    checks.assertByteRange(key, range);
    return this.#at("read", key, options, async (directory) => {
      const bytes = await openBytes(key, directory);
      if (bytes === undefined) throw checks.notFound(key, this.place);
      return readRange(bytes, range, options);
    });
  }

  probe(options?: CallOptions): Promise<void> {
    return probeConditions(this, options);
  }

  async sweep(options: CallOptions = {}): Promise<number> {
    try {
      return await sweepTree(this.#tree, { writersDir: this.#writersDir, self: await this.#self(), ...options });
    } catch (error) {
      throw fileFailure(`tidy up ${this.place}`, error);
    }
  }

  async close(): Promise<void> {
    const writer = await this.#writer;
    this.#writer = undefined;
    await writer?.close();
  }

  async #write(
    key: string,
    directory: ObjectDirectory,
    options: Write,
    fill: (path: string) => Promise<void>,
  ): Promise<ObjectInfo> {
    // A big file is not copied if its condition fails now. Whether the condition holds is decided later, together with
    // the change.
    if (options.if !== undefined && options.if !== ((await directory.current()) ?? "absent"))
      throw checks.conflict(key);
    const writer = await this.#self();
    const version = writer.begin();
    try {
      await writeBytes(directory, version, fill);
      const info = infoOf(key, version, await stat(directory.bytes(version)));
      options.signal?.throwIfAborted();
      if (!(await commit(directory, version, options))) throw checks.conflict(key);
      return info;
    } catch (error) {
      // What cannot be removed now is removed by a sweep.
      await directory
        .sweep(version)
        .then(() => directory.removeIfEmpty())
        .catch(() => undefined);
      throw error;
    } finally {
      writer.done(version);
    }
  }

  /** This process as a writer of the store. It starts with the first write, because readers need none. */
  #self(): Promise<Writer> {
    this.#writer ??= Writer.start(this.#writersDir).catch((error: unknown) => {
      this.#writer = undefined;
      throw error;
    });
    return this.#writer;
  }

  async #at<T>(
    verb: string,
    key: string,
    options: CallOptions,
    run: (directory: ObjectDirectory) => Promise<T>,
  ): Promise<T> {
    assertObjectKey(key);
    options.signal?.throwIfAborted();
    try {
      return await run(this.#tree.at(key));
    } catch (error) {
      throw fileFailure(`${verb} ${key} in ${this.place}`, error);
    }
  }
}

/** Makes a version the object's present one. Returns false if the condition does not hold at that moment. */
async function commit(directory: ObjectDirectory, version: ObjectVersion, options: Write): Promise<boolean> {
  if (options.if === "absent") return directory.create(version);
  if (options.if !== undefined) return isVersion(options.if) && directory.replace(options.if, version);
  for (;;) {
    options.signal?.throwIfAborted();
    const current = await directory.current();
    if (current === undefined ? await directory.create(version) : await directory.replace(current, version))
      return true;
  }
}
