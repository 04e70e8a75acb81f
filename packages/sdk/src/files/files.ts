import { isSandboxError, type routes, type FileInfo, type SandboxId, type WatchMessage } from "@atoll/protocol";
import type { z } from "zod";
import type { Wire } from "../commands/command-handle.ts";
import type { ByteSource } from "../http/exchange.ts";
import { watchFiles } from "./watch.ts";

interface FileOptions {
  /** The user whose permissions apply, and at whose home relative paths start; `user` when absent. */
  user?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface ReadOptions extends FileOptions {
  as?: "text" | "bytes" | "stream" | undefined;
  offset?: number | undefined;
  length?: number | undefined;
}

export interface WriteOptions extends FileOptions {
  /** The mode of a new file, in octal. */
  mode?: string | undefined;
  /** `create` refuses to replace a file. */
  how?: "replace" | "append" | "create" | undefined;
}

export interface WatchOptions extends FileOptions {
  recursive?: boolean | undefined;
}

export type SignedUrl = z.infer<typeof routes.signFile.reply>;

/** The files of one sandbox: `sandbox.files`. Relative paths start at the user's home. */
export class Files {
  readonly #wire: Wire;
  readonly #params: { id: SandboxId };
  readonly #baseUrl: string;

  constructor(wire: Wire, sandboxId: SandboxId, baseUrl: string) {
    this.#wire = wire;
    this.#params = { id: sandboxId };
    this.#baseUrl = baseUrl;
  }

  /**
   * Reads a file, as text unless asked otherwise. A stream is read as it comes, whatever the size.
   *
   * @example
   * await sandbox.files.write("notes.txt", "hello");
   * console.log(await sandbox.files.read("notes.txt")); // hello
   */
  async read(path: string, options: ReadOptions & { as: "bytes" }): Promise<Uint8Array>;
  async read(path: string, options: ReadOptions & { as: "stream" }): Promise<ReadableStream<Uint8Array>>;
  async read(path: string, options?: ReadOptions & { as?: "text" | undefined }): Promise<string>;
  async read(path: string, options: ReadOptions = {}): Promise<string | Uint8Array | ReadableStream<Uint8Array>> {
    const { as = "text", user, offset, length, signal } = options;
    const query = { path, user, offset, length };
    const call = { params: this.#params, query, signal };
    if (as === "stream") return this.#wire.http.stream("readFile", call);
    const bytes = await this.#wire.http.bytes("readFile", call);
    return as === "bytes" ? bytes : new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  }

  /**
   * Writes a file, whole or not at all; missing directories are made.
   *
   * @example
   * const file = await sandbox.files.write("data/bytes.bin", new Uint8Array([1, 2, 3]));
   * console.log(file.sizeBytes); // 3
   */
  async write(path: string, content: ByteSource, options: WriteOptions = {}): Promise<FileInfo> {
    const { user, mode, how, signal } = options;
    const query = { path, user, mode, how };
    return this.#wire.http.call("writeFile", {
      params: this.#params,
      query,
      bytes: content,
      // A repeated write puts the same bytes in the same place; a repeated append would add them twice.
      ...(how === undefined || how === "replace" ? { isRepeatable: true } : {}),
      timeoutMs: undefined,
      signal,
    });
  }

  /**
   * Writes several files.
   *
   * @example
   * await sandbox.files.writeFiles({ "a.txt": "a", "b.txt": "b" });
   * console.log(await sandbox.files.read("b.txt")); // b
   */
  async writeFiles(files: Record<string, ByteSource>, options: WriteOptions = {}): Promise<FileInfo[]> {
    const written: FileInfo[] = [];
    // Files are written one after the other: parallel writes would be many processes in the sandbox at once.
    for (const [path, content] of Object.entries(files)) written.push(await this.write(path, content, options));
    return written;
  }

  /**
   * Lists a directory by name; with `depth` also the directories below.
   *
   * @example
   * await sandbox.files.write("listed/one.txt", "1");
   * console.log((await sandbox.files.list("listed")).map(({ name }) => name)); // [ 'one.txt' ]
   */
  async list(path: string, options: FileOptions & { depth?: number | undefined } = {}): Promise<FileInfo[]> {
    const { user, depth, signal } = options;
    const query = { path, user, depth };
    const { files } = await this.#wire.http.call("listFiles", { params: this.#params, query, signal });
    return files.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /**
   * Describes a file or directory.
   *
   * @example
   * await sandbox.files.write("some.txt", "12345");
   * const { type, sizeBytes } = await sandbox.files.stat("some.txt");
   * console.log(type, sizeBytes); // file 5
   */
  async stat(path: string, options: FileOptions = {}): Promise<FileInfo> {
    const { user, signal } = options;
    return this.#wire.http.call("statFile", { params: this.#params, query: { path, user }, signal });
  }

  /**
   * Returns whether the path exists.
   *
   * @example
   * console.log(await sandbox.files.exists("nothing-here")); // false
   */
  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      // `not_found` may also mean that the sandbox is gone, which does not answer the question.
      if (isSandboxError(error, "not_found") && (await this.#sandboxExists(options.signal))) return false;
      throw error;
    }
  }

  /**
   * Makes a directory, with its parents unless `parents` is false.
   *
   * @example
   * await sandbox.files.mkdir("deep/down");
   * console.log((await sandbox.files.stat("deep/down")).type); // directory
   */
  async mkdir(
    path: string,
    options: FileOptions & { mode?: string | undefined; parents?: boolean | undefined } = {},
  ): Promise<FileInfo> {
    const { signal, ...body } = options;
    return this.#wire.http.call("makeDirectory", { params: this.#params, body: { path, ...body }, signal });
  }

  /**
   * Renames or moves; `replace: false` refuses to overwrite.
   *
   * @example
   * await sandbox.files.write("before.txt", "same");
   * await sandbox.files.rename("before.txt", "after.txt");
   * console.log(await sandbox.files.read("after.txt")); // same
   */
  async rename(
    from: string,
    to: string,
    options: FileOptions & { replace?: boolean | undefined } = {},
  ): Promise<FileInfo> {
    const { signal, ...body } = options;
    return this.#wire.http.call("renameFile", { params: this.#params, body: { from, to, ...body }, signal });
  }

  /**
   * Removes a file, or a directory with `recursive`.
   *
   * @example
   * await sandbox.files.write("old/file.txt", "");
   * await sandbox.files.remove("old", { recursive: true });
   * console.log(await sandbox.files.exists("old")); // false
   */
  async remove(path: string, options: FileOptions & { recursive?: boolean | undefined } = {}): Promise<void> {
    const { user, recursive, signal } = options;
    const query = { path, user, ...(recursive === true ? { recursive: "true" as const } : {}) };
    await this.#wire.http.call("removeFile", { params: this.#params, query, signal });
  }

  /**
   * Follows changes under a path. The first message has the kind `watching`: every change after it is reported. After a
   * broken connection the watch continues without a gap; `lost` means that more changes happened than were kept, so the
   * caller must read the directory again.
   *
   * @example
   * await sandbox.files.mkdir("watched");
   * for await (const change of sandbox.files.watch("watched")) {
   *   if (change.kind === "watching") await sandbox.files.write("watched/new.txt", "");
   *   else if (change.path === "new.txt") break;
   * }
   */
  watch(path: string, options: WatchOptions = {}): AsyncGenerator<WatchMessage, void, undefined> {
    return watchFiles(this.#wire.socket, { sandboxId: this.#params.id, path, ...options });
  }

  /**
   * Unpacks a tar archive into a directory.
   *
   * @example
   * await sandbox.files.write("packed/file.txt", "in a tar");
   * await sandbox.files.upload(await sandbox.files.download("packed"), "unpacked");
   * console.log(await sandbox.files.read("unpacked/file.txt")); // in a tar
   */
  async upload(tar: ByteSource, path: string, options: FileOptions = {}): Promise<{ files: number; bytes: number }> {
    const { user, signal } = options;
    const query = { path, user };
    return this.#wire.http.call("unpackFiles", {
      params: this.#params,
      query,
      bytes: tar,
      timeoutMs: undefined,
      signal,
    });
  }

  /**
   * Returns a directory as a tar archive.
   *
   * @example
   * await sandbox.files.write("folder/file.txt", "some text");
   * const tar = await new Response(await sandbox.files.download("folder")).arrayBuffer();
   * console.log(tar.byteLength % 512); // 0
   */
  async download(path: string, options: FileOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { user, signal } = options;
    return this.#wire.http.stream("packFiles", { params: this.#params, query: { path, user }, signal });
  }

  /**
   * Returns a URL for one file that works without a key until it expires: to read it, or with `method: "PUT"` to write
   * it.
   *
   * @example
   * await sandbox.files.write("report.txt", "for you");
   * const { url } = await sandbox.files.signUrl("report.txt", { expiresInMs: 60_000 });
   * console.log(await (await fetch(url)).text()); // for you
   */
  async signUrl(
    path: string,
    options: FileOptions & { method?: "GET" | "PUT" | undefined; expiresInMs?: number | undefined } = {},
  ): Promise<SignedUrl> {
    const { signal, ...body } = options;
    const signed = await this.#wire.http.call("signFile", { params: this.#params, body: { path, ...body }, signal });
    return { ...signed, url: new URL(signed.url, `${this.#baseUrl}/`).href };
  }

  async #sandboxExists(signal: AbortSignal | undefined): Promise<boolean> {
    try {
      await this.#wire.http.call("getSandbox", { params: this.#params, signal });
      return true;
    } catch {
      return false;
    }
  }
}
