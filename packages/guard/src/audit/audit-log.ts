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
import { RateLimiter } from "../rate-limiter.ts";
import { redact } from "./redact.ts";

/** One action in the audit log: the principal, the action, the time and the result. */
export interface AuditEntry {
  /**
   * The id of an API key, `sandbox:<id>` for a sandbox's own token, `server` for what the server does by itself, or
   * `nobody` for requests without valid credentials.
   */
  who: string;
  /** The name of a route, or of an action of the server. */
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
  /** The approximate size at which the file is renamed and another one begun. */
  fileBytes?: number;
  /** How many renamed files are kept. */
  files?: number;
  /**
   * How many lines a minute may be about unauthenticated requests. What any client can cause without a key must not
   * push out what keys did.
   */
  unauthenticatedPerMinute?: number;
  /** Called when a line could not be written; `record` goes on without it. */
  onError?: (error: unknown, entry: AuditEntry) => void;
}

/** Writes one JSON object per line to `audit.jsonl`; older lines are in `audit-<time>.jsonl`. Secrets are left out. */
export class AuditLog {
  readonly #dir: string;
  readonly #options: Required<AuditOptions>;
  #file: number | undefined;
  #bytes = 0;
  #unauthenticated = new RateLimiter();
  #leftOut = 0;

  constructor(dir: string, options: AuditOptions = {}) {
    this.#dir = dir;
    this.#options = {
      fileBytes: 32 * 1024 * 1024,
      files: 16,
      unauthenticatedPerMinute: 60,
      onError: () => undefined,
      ...options,
    };
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#open();
  }

  /**
   * Records an action that has already happened, and does not throw when the disk is full. Unauthenticated requests
   * have a limit per minute; the number of lines beyond it is recorded.
   */
  record(entry: AuditEntry): void {
    const isUnauthenticated = entry.who === "nobody";
    if (isUnauthenticated && this.#unauthenticated.take("", this.#options.unauthenticatedPerMinute) > 0) {
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
    const details = { lines: this.#leftOut, because: "too many unauthenticated requests" };
    this.write({ who: "server", what: "audit", result: "left out", details });
    this.#leftOut = 0;
  }

  /** Writes one line. The line is in the file when this returns; when it throws, no part of the line is there. */
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
      // Otherwise the next line would continue the broken one.
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
    const rotated = this.#rotatedFiles();
    const newest = rotated.at(-1);
    // Two in one millisecond must not share a name, and a clock that was set back must not change the order.
    const stamp = Math.max(Date.now(), newest === undefined ? 0 : Number(/\d+/.exec(newest)?.[0]) + 1);
    renameSync(this.#path, join(this.#dir, `audit-${String(stamp).padStart(15, "0")}.jsonl`));
    for (const name of this.#rotatedFiles().slice(0, -this.#options.files))
      rmSync(join(this.#dir, name), { force: true });
    this.#open();
  }

  #rotatedFiles(): string[] {
    return readdirSync(this.#dir)
      .filter((name) => /^audit-\d+\.jsonl$/.test(name))
      .toSorted();
  }

  get #path(): string {
    return join(this.#dir, "audit.jsonl");
  }
}
