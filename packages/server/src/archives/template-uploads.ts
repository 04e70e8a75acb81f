import { randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { SandboxError } from "@atoll/protocol";
import { storageError } from "../support/storage-error.ts";

/** The directory for uploaded archives while templates are made of them. */
export class TemplateUploads {
  readonly #dir: string;
  readonly maxBytes: number;

  private constructor(dir: string, maxBytes: number) {
    this.#dir = dir;
    this.maxBytes = maxBytes;
  }

  /** Removes what an earlier server left behind: no request waits for it. */
  static async open(dir: string, maxBytes: number): Promise<TemplateUploads> {
    await rm(dir, { recursive: true, force: true });
    await mkdir(dir, { recursive: true, mode: 0o700 });
    return new TemplateUploads(dir, maxBytes);
  }

  /** Stores the archive while `use` runs and removes it afterwards. */
  async use(
    body: AsyncIterable<Buffer>,
    signal: AbortSignal,
    use: (archive: string) => Promise<unknown>,
  ): Promise<void> {
    const archive = join(this.#dir, randomUUID());
    const bounded = this.#bounded.bind(this);
    try {
      await pipeline(body, bounded, createWriteStream(archive, { mode: 0o600 }), { signal }).catch((error: unknown) => {
        throw storageError(error, "import a template");
      });
      await use(archive);
    } finally {
      await rm(archive, { force: true });
    }
  }

  async *#bounded(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, void> {
    let bytes = 0;
    for await (const piece of pieces) {
      bytes += piece.byteLength;
      if (bytes > this.maxBytes) {
        throw new SandboxError("limit_reached", `Cannot import a template of more than ${this.maxBytes} bytes`, {
          suggestion: "Leave out what is not needed, or raise the server's setting maxTemplateBytes.",
          details: { maxBytes: this.maxBytes, setting: "maxTemplateBytes" },
        });
      }
      yield piece;
    }
  }
}
