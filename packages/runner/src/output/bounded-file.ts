import { createHash } from "node:crypto";
import { open, rm, type FileHandle } from "node:fs/promises";

export interface BoundedFileOptions {
  /** The largest that the file becomes, apart from the line that stands for what was dropped. */
  maxBytes: number;
}

export interface BoundedFileSummary {
  /** How much was written to it. */
  bytes: number;
  /** How many of them are not in the file. */
  dropped: number;
  /** The digest of all bytes, dropped ones included. */
  sha256: string;
}

/** What may wait for the disk before a writer is made to wait. */
const mostPendingBytes = 1024 * 1024;
const copyBytes = 256 * 1024;

/**
 * A file of what a stranger prints, whatever that is: its first half is the beginning, its second half the end, and a
 * line between them says how much is missing. The end is kept as a ring in a second file until `close`, so that memory
 * holds a mebibyte, however much comes.
 */
export class BoundedFile {
  readonly path: string;
  readonly #head: FileHandle;
  readonly #headBytes: number;
  readonly #ringBytes: number;
  readonly #hash = createHash("sha256");
  #ring: FileHandle | undefined;
  #bytes = 0;
  #placed = 0;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;
  #pump: Promise<void> | undefined;
  #failure: Error | undefined;

  private constructor(path: string, head: FileHandle, maxBytes: number) {
    this.path = path;
    this.#head = head;
    this.#headBytes = Math.floor(maxBytes / 2);
    this.#ringBytes = maxBytes - this.#headBytes;
  }

  /** Replaces what is at the path. */
  static async open(path: string, { maxBytes }: BoundedFileOptions): Promise<BoundedFile> {
    return new BoundedFile(path, await open(path, "w+", 0o600), maxBytes);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Resolves when there is room for more, and rejects when the disk does not take it. The data is not copied. */
  async write(data: Uint8Array): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    this.#hash.update(data);
    this.#bytes += data.length;
    this.#pending.push(data);
    this.#pendingBytes += data.length;
    this.#pump ??= this.#writePending();
    if (this.#pendingBytes > mostPendingBytes) await this.#settle();
  }

  async close(): Promise<BoundedFileSummary> {
    try {
      await this.#settle();
      const dropped = Math.max(0, this.#placed - this.#headBytes - this.#ringBytes);
      await this.#appendRing(dropped);
      return { bytes: this.#bytes, dropped, sha256: this.#hash.digest("hex") };
    } finally {
      await this.#head.close();
      await this.#ring?.close();
      await rm(this.#ringPath, { force: true });
    }
  }

  get #ringPath(): string {
    return `${this.path}.end`;
  }

  async #settle(): Promise<void> {
    await this.#pump;
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Writes at once everything that arrived while the disk was busy, so that many small pieces need few writes. */
  async #writePending(): Promise<void> {
    try {
      while (this.#pending.length > 0) {
        const data = Buffer.concat(this.#pending);
        this.#pending = [];
        await this.#place(data);
        this.#pendingBytes -= data.length;
      }
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error));
    } finally {
      this.#pump = undefined;
    }
  }

  async #place(data: Buffer): Promise<void> {
    let rest = data;
    const toHead = rest.subarray(0, Math.max(0, this.#headBytes - this.#placed));
    if (toHead.length > 0) await writeAll(this.#head, toHead, this.#placed);
    this.#placed += toHead.length;
    rest = rest.subarray(toHead.length);
    // Only the end of a piece that is larger than the ring would stay.
    const passed = Math.max(0, rest.length - this.#ringBytes);
    this.#placed += passed;
    rest = rest.subarray(passed);
    while (rest.length > 0) {
      this.#ring ??= await open(this.#ringPath, "w+", 0o600);
      const at = (this.#placed - this.#headBytes) % this.#ringBytes;
      const piece = rest.subarray(0, this.#ringBytes - at);
      await writeAll(this.#ring, piece, at);
      this.#placed += piece.length;
      rest = rest.subarray(piece.length);
    }
  }

  async #appendRing(dropped: number): Promise<void> {
    if (this.#ring === undefined) return;
    const inRing = Math.min(this.#placed - this.#headBytes, this.#ringBytes);
    const start = dropped > 0 ? (this.#placed - this.#headBytes) % this.#ringBytes : 0;
    let to = this.#headBytes;
    if (dropped > 0) {
      const line = Buffer.from(`\n[${dropped} bytes dropped]\n`);
      await writeAll(this.#head, line, to);
      to += line.length;
    }
    const buffer = Buffer.alloc(Math.min(copyBytes, inRing));
    for (let copied = 0; copied < inRing;) {
      const at = (start + copied) % this.#ringBytes;
      const length = Math.min(buffer.length, inRing - copied, this.#ringBytes - at);
      const { bytesRead } = await this.#ring.read(buffer, 0, length, at);
      if (bytesRead === 0) throw new Error(`Cannot finish ${this.path}: ${this.#ringPath} became shorter`);
      await writeAll(this.#head, buffer.subarray(0, bytesRead), to + copied);
      copied += bytesRead;
    }
  }
}

async function writeAll(file: FileHandle, data: Buffer, position: number): Promise<void> {
  for (let at = 0; at < data.length;) {
    at += (await file.write(data, at, data.length - at, position + at)).bytesWritten;
  }
}
