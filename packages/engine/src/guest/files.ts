import { SandboxError } from "@atoll/protocol";
import type { GuestChannel } from "./channel.ts";
import { parseEntry, parseEvent, type FileEntry, type WatchEvent } from "./tool-records.ts";
import { badAnswer, ToolRun } from "./tool-run.ts";
import { MalformedPayload } from "./wire.ts";

export interface FileOptions {
  /** The sandbox's kernel checks the permissions of this user. */
  user?: string;
  signal?: AbortSignal;
}

/**
 * The limit of a whole listing, which is kept in memory; an entry counts as its record and what the host needs to keep
 * it.
 */
const maxListingBytes = 64 * 1024 * 1024;
const entryOverheadBytes = 256;

/**
 * The files of one sandbox. A relative path begins at the user's home. Everything happens inside, by a tool of the
 * guest that runs as the given user: no path that a sandbox prepares can make the host open a file of its own.
 */
export class GuestFiles {
  #channel: () => GuestChannel;

  /** `channel` throws when the sandbox does not run. */
  constructor(channel: () => GuestChannel) {
    this.#channel = channel;
  }

  /** Does not follow `path` if it is a link. */
  async stat(path: string, options: FileOptions = {}): Promise<FileEntry> {
    const [entry] = await this.#entries(["stat", path], `stat ${path}`, options);
    if (entry === undefined) throw new SandboxError("guest_violation", `Cannot stat ${path}: the guest sent no entry`);
    return entry;
  }

  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof SandboxError && error.code === "not_found") return false;
      throw error;
    }
  }

  /** Lists directories before their contents, with names relative to `path`. Depth 1 is what is in `path` itself. */
  list(path: string, options: FileOptions & { depth?: number } = {}): Promise<FileEntry[]> {
    return this.#entries(["list", path, String(options.depth ?? 1)], `list ${path}`, options);
  }

  /** Yields the bytes as they come. A reader that stops early ends the read. */
  async *read(
    path: string,
    options: FileOptions & { offset?: number; length?: number } = {},
  ): AsyncGenerator<Buffer, void, void> {
    const range = [String(options.offset ?? 0), String(options.length ?? -1)];
    const tool = await this.#start(["read", path, ...range], options, false);
    try {
      for await (const { stream, data } of tool.process) {
        if (stream === "stdout") yield data;
        else tool.addMessage(data);
      }
    } finally {
      await tool.process.kill("SIGKILL");
    }
    await tool.finish(`read ${path}`);
  }

  /** Reads the whole file into memory. Use `read` for files that may be large. */
  async readAll(path: string, options: FileOptions & { maxBytes?: number } = {}): Promise<Buffer> {
    const maxBytes = options.maxBytes ?? 64 * 1024 * 1024;
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of this.read(path, options)) {
      size += chunk.byteLength;
      if (size > maxBytes) {
        throw new SandboxError("limit_reached", `Cannot read ${path} at once: it has more than ${maxBytes} bytes`, {
          suggestion: "Read it as a stream.",
        });
      }
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  }

  /**
   * Writes a file and makes missing directories above it. `replace` and `create` are atomic: other processes see the
   * old file or the whole new one, and no file is left when the source fails half-way. `create` refuses to replace.
   */
  async write(
    path: string,
    content: string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    options: FileOptions & { mode?: number; how?: "replace" | "append" | "create" } = {},
  ): Promise<void> {
    const mode = (options.mode ?? 0o644).toString(8);
    const tool = await this.#start(["write", path, mode, options.how ?? "replace"], options, true);
    tool.readStderr();
    let isWhole = true;
    try {
      for await (const piece of pieces(content)) {
        isWhole = await tool.feed(piece);
        if (!isWhole) break;
      }
      await tool.process.closeStdin();
    } catch (error) {
      // The source failed, so the tool must not commit the file.
      await tool.process.kill("SIGKILL");
      await tool.process.wait().catch(() => undefined);
      throw error;
    }
    await tool.finish(`write ${path}`);
    if (!isWhole) throw badAnswer(new MalformedPayload(`It reports success but has not taken all of ${path}`));
  }

  mkdir(path: string, options: FileOptions & { mode?: number; parents?: boolean } = {}): Promise<void> {
    const mode = (options.mode ?? 0o755).toString(8);
    const parents = (options.parents ?? true) ? "parents" : "one";
    return this.#run(["mkdir", path, mode, parents], `make directory ${path}`, options);
  }

  rename(from: string, to: string, options: FileOptions & { replace?: boolean } = {}): Promise<void> {
    const replace = (options.replace ?? true) ? "replace" : "keep";
    return this.#run(["rename", from, to, replace], `rename ${from} to ${to}`, options);
  }

  remove(path: string, options: FileOptions & { recursive?: boolean } = {}): Promise<void> {
    const how = (options.recursive ?? false) ? "recursive" : "one";
    return this.#run(["remove", path, how], `remove ${path}`, options);
  }

  /**
   * Yields changes as they happen, beginning with `watching`. Ends when `signal` aborts or the caller leaves the loop.
   */
  async *watch(
    path: string,
    options: FileOptions & { recursive?: boolean } = {},
  ): AsyncGenerator<WatchEvent, void, void> {
    const how = (options.recursive ?? false) ? "recursive" : "flat";
    const tool = await this.#start(["watch", path, how], options, false);
    try {
      for await (const record of tool.records(`watch ${path}`)) yield parsed(() => parseEvent(record));
    } catch (error) {
      if (error !== options.signal?.reason) throw error;
    }
  }

  async #entries(argv: string[], asked: string, options: FileOptions): Promise<FileEntry[]> {
    const tool = await this.#start(argv, options, false);
    const entries: FileEntry[] = [];
    let size = 0;
    for await (const record of tool.records(asked)) {
      size += record.byteLength + entryOverheadBytes;
      if (size > maxListingBytes) {
        throw new SandboxError("limit_reached", `Cannot ${asked}: there are more than ${entries.length} entries`, {
          suggestion: "List its directories one by one.",
          details: { entries: entries.length },
        });
      }
      entries.push(parsed(() => parseEntry(record)));
    }
    return entries;
  }

  async #run(argv: string[], asked: string, options: FileOptions): Promise<void> {
    const tool = await this.#start(argv, options, false);
    tool.readStderr();
    await tool.finish(asked);
  }

  async #start(argv: string[], options: FileOptions, stdin: boolean): Promise<ToolRun> {
    if (argv.some((argument) => argument.includes("\0"))) {
      throw new SandboxError("invalid_argument", "Cannot use a path with a NUL byte in it");
    }
    // A missing home must not prevent the use of a path that does not begin in it.
    const paths = argv.slice(1, argv[0] === "rename" ? 3 : 2);
    const cwd = paths.every((path) => path.startsWith("/")) ? "/" : "";
    const { user = "user", signal } = options;
    return ToolRun.start(this.#channel(), argv, { user, cwd, stdin, ...(signal === undefined ? {} : { signal }) });
  }
}

function parsed<T>(parse: () => T): T {
  try {
    return parse();
  } catch (cause) {
    throw cause instanceof MalformedPayload ? badAnswer(cause) : cause;
  }
}

async function* pieces(
  content: string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, void> {
  if (typeof content === "string") yield Buffer.from(content);
  else if (content instanceof Uint8Array) yield content;
  else yield* content;
}
