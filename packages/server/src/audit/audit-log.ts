import {
  closeSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { RateLimiter } from "../auth/rate-limiter.ts";
import { redact } from "./redact.ts";

/** Who did what, when, with which result. */
export interface AuditEntry {
  /**
   * A key's id, `sandbox:<id>` for a sandbox's own token, `server` for what happens by itself, `nobody` for strangers.
   */
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
  /** Lines about strangers. What anybody can cause without a key must not push out what keys did. */
  strangersPerMinute?: number;
  /** Told when a line could not be written; `tell` goes on without it. */
  onError?: (error: unknown, entry: AuditEntry) => void;
}

/** One JSON object per line in `audit.jsonl`; older lines are in `audit-<time>.jsonl`. Secrets are left out. */
export class AuditLog {
  readonly #dir: string;
  readonly #options: Required<AuditOptions>;
  #file: number | undefined;
  #bytes = 0;
  #strangers = new RateLimiter();
  #leftOut = 0;

  constructor(dir: string, options: AuditOptions = {}) {
    this.#dir = dir;
    this.#options = {
      fileBytes: 32 * 1024 * 1024,
      files: 16,
      strangersPerMinute: 60,
      onError: () => undefined,
      ...options,
    };
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#open();
  }

  /**
   * For what has happened already, also when there is no room to say so. Of strangers only so much is told, and how
   * much was left out.
   */
  record(entry: AuditEntry): void {
    const isStranger = entry.who === "nobody";
    if (isStranger && this.#strangers.take("", this.#options.strangersPerMinute) > 0) {
      this.#leftOut += 1;
      return;
    }
    try {
      this.#reportLeftOut();
      this.write(entry);
    } catch (error) {
      this.#options.onError(error, entry);
    }
  }

  #reportLeftOut(): void {
    if (this.#leftOut === 0) return;
    const details = { lines: this.#leftOut, because: "strangers asked for too much" };
    this.write({ who: "server", what: "audit", result: "left out", details });
    this.#leftOut = 0;
  }

  /** In the file when it returns. When it throws, nothing of the line is there. */
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
    this.#append(this.#file ?? -1, bytes);
    this.#bytes += bytes.byteLength;
  }

  #append(file: number, bytes: Buffer): void {
    try {
      for (let written = 0; written < bytes.byteLength;) written += writeSync(file, bytes, written);
    } catch (error) {
      // The next line would go on where this one broke off.
      ftruncateSync(file, this.#bytes);
      throw error;
    }
  }

  close(): void {
    try {
      this.#reportLeftOut();
    } finally {
      this.#close();
    }
  }

  #close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  #open(): void {
    this.#file = openSync(this.#path, "a", 0o600);
    this.#bytes = fstatSync(this.#file).size;
  }

  #rotate(): void {
    this.#close();
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
