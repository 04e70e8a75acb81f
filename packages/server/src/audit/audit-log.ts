import { closeSync, mkdirSync, openSync, fstatSync, readdirSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { redact } from "./redact.ts";

/** Who did what, when, with which result. */
export interface AuditEntry {
  /** A key's id, `sandbox:<id>` for a sandbox's own token, `server` for what happens by itself. */
  who: string;
  /** A route's name, or what the server did. */
  what: string;
  sandboxId?: string | undefined;
  /** `ok`, or the code of the error. */
  result: string;
  bytesIn?: number | undefined;
  bytesOut?: number | undefined;
  durationMs?: number | undefined;
  requestId?: string | undefined;
  details?: Record<string, unknown> | undefined;
}

export interface AuditOptions {
  /** A file is put aside at about this size. */
  fileBytes?: number;
  /** So many of those that were put aside are kept. */
  files?: number;
}

/** One JSON object per line in `audit.jsonl`; older lines are in `audit-<time>.jsonl`. Secrets are left out. */
export class AuditLog {
  readonly #dir: string;
  readonly #options: Required<AuditOptions>;
  #file: number | undefined;
  #bytes = 0;

  constructor(dir: string, options: AuditOptions = {}) {
    this.#dir = dir;
    this.#options = { fileBytes: 32 * 1024 * 1024, files: 16, ...options };
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#open();
  }

  /** In the file when it returns. */
  write(entry: AuditEntry): void {
    const { details, ...facts } = entry;
    const line = {
      at: new Date().toISOString(),
      ...facts,
      ...(details === undefined ? {} : { details: redact(details) }),
    };
    const bytes = Buffer.from(`${JSON.stringify(line)}\n`);
    if (this.#bytes > 0 && this.#bytes + bytes.byteLength > this.#options.fileBytes) this.#rotate();
    if (this.#file === undefined) this.#open();
    writeSync(this.#file ?? -1, bytes);
    this.#bytes += bytes.byteLength;
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  #open(): void {
    this.#file = openSync(this.#path, "a", 0o600);
    this.#bytes = fstatSync(this.#file).size;
  }

  #rotate(): void {
    this.close();
    const asides = this.#asides();
    const newest = asides.at(-1);
    // Two in one millisecond must not share a name, and a clock that was set back must not change the order.
    const stamp = Math.max(Date.now(), newest === undefined ? 0 : Number(/\d+/.exec(newest)?.[0]) + 1);
    renameSync(this.#path, join(this.#dir, `audit-${String(stamp).padStart(15, "0")}.jsonl`));
    for (const name of this.#asides().slice(0, -this.#options.files)) rmSync(join(this.#dir, name), { force: true });
    this.#open();
  }

  #asides(): string[] {
    return readdirSync(this.#dir)
      .filter((name) => /^audit-\d+\.jsonl$/.test(name))
      .toSorted();
  }

  get #path(): string {
    return join(this.#dir, "audit.jsonl");
  }
}
