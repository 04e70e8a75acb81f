import { closeSync, fstatSync, ftruncateSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { AuditHead, AuditLevel, AuditLine } from "@atoll/protocol";
import { RateLimiter } from "../rate-limiter.ts";
import { isRecorded, type AuditEntry, type AuditKind } from "./audit-entry.ts";
import { currentFile, lastLineOf, rotatedFiles, rotatedName, stampOf } from "./audit-files.ts";
import { chainLine, longestLine, parseChained, parseLine } from "./chain.ts";
import { HeadFile } from "./head-record.ts";
import { recoverLog } from "./recover-log.ts";
import { redact } from "./redact.ts";

export interface AuditOptions {
  /** The key of the server, with which it proves that it wrote the log. */
  key: Buffer;
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
  /** Called for everything that was found wrong when the log was opened. It is recorded in the log, too. */
  onRepair?: (message: string) => void;
}

/**
 * Writes one JSON object per line to `audit.jsonl`; older lines are in `audit-<time>.jsonl`. Each line has the hash of
 * the line before, and `head.json` names the last one, so that a line that is changed, removed or moved is found out.
 * Secrets are left out. One process at a time may have a log open.
 */
export class AuditLog {
  readonly dir: string;
  readonly #options: Required<AuditOptions>;
  readonly #headFile: HeadFile;
  readonly #followers = new Set<(line: AuditLine) => void>();
  #head: AuditHead;
  #dropped: AuditHead | undefined;
  #file: number | undefined;
  #bytes = 0;
  #unauthenticated = new RateLimiter();
  #leftOut = 0;

  constructor(dir: string, options: AuditOptions) {
    this.dir = dir;
    this.#options = {
      fileBytes: 32 * 1024 * 1024,
      files: 16,
      unauthenticatedPerMinute: 60,
      onError: () => undefined,
      onRepair: () => undefined,
      ...options,
    };
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    const found = recoverLog(dir, options.key);
    this.#head = found.head;
    this.#dropped = found.dropped;
    this.#headFile = new HeadFile(dir, options.key);
    this.#open();
    for (const { message, ...entry } of found.entries) {
      if (message !== undefined) this.#options.onRepair(message);
      this.record({ who: "server", what: "audit", ...entry });
    }
  }

  /** The last line: keep it elsewhere to be able to prove that the log up to it has not been rewritten. */
  get head(): AuditHead {
    return this.#head;
  }

  /** The key that proves who wrote the log. */
  get key(): Buffer {
    return this.#options.key;
  }

  /**
   * Records an action that has already happened, and does not throw when the disk is full. Unauthenticated requests
   * have a limit per minute; the number of lines beyond it is recorded.
   */
  record(entry: AuditEntry, level: AuditLevel = "basic", kind: AuditKind = "change"): void {
    if (!isRecorded(kind, level)) return;
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

  /** Calls the listener with each new line, until the returned function is called. */
  listen(listener: (line: AuditLine) => void): () => void {
    this.#followers.add(listener);
    return () => this.#followers.delete(listener);
  }

  #reportLeftOut(): void {
    if (this.#leftOut === 0) return;
    const details = { lines: this.#leftOut, because: "too many unauthenticated requests" };
    this.write({ who: "server", what: "audit", result: "left out", details });
    this.#leftOut = 0;
  }

  /** Writes one line. The line is in the file when this returns; when it throws, no part of the line is there. */
  write(entry: AuditEntry): void {
    let chained = this.#chain(entry);
    if (this.#bytes > 0 && this.#bytes + chained.bytes.byteLength > this.#options.fileBytes) {
      this.#rotate();
      // The lines about what was dropped come before this one.
      chained = this.#chain(entry);
    }
    this.#append(chained);
  }

  #chain({ details, ...facts }: AuditEntry): { head: AuditHead; bytes: Buffer } {
    const line = { at: new Date().toISOString(), ...facts };
    const chain = (whole: object): { head: AuditHead; bytes: Buffer } => {
      const { head, text } = chainLine(this.#options.key, this.#head, whole);
      return { head, bytes: Buffer.from(`${text}\n`) };
    };
    const chained = chain(details === undefined ? line : { ...line, details: redact(details) });
    const { byteLength } = chained.bytes;
    return byteLength > longestLine ? chain({ ...line, details: { leftOut: `${byteLength} bytes` } }) : chained;
  }

  #append({ head, bytes }: { head: AuditHead; bytes: Buffer }): void {
    const file = this.#file ?? this.#open();
    try {
      for (let written = 0; written < bytes.byteLength;) written += writeSync(file, bytes, written);
    } catch (error) {
      // Otherwise the next line would continue the broken one.
      ftruncateSync(file, this.#bytes);
      throw error;
    }
    this.#bytes += bytes.byteLength;
    this.#head = head;
    this.#writeHead();
    if (this.#followers.size === 0) return;
    const line = parseLine(bytes.toString());
    if (line !== undefined) for (const follower of this.#followers) follower(line);
  }

  #writeHead(): void {
    this.#headFile.write({ ...this.#head, ...(this.#dropped === undefined ? {} : { dropped: this.#dropped }) });
  }

  close(): void {
    try {
      this.#reportLeftOut();
    } finally {
      this.#close();
      this.#headFile.close();
    }
  }

  #close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  #open(): number {
    this.#file = openSync(join(this.dir, currentFile), "a", 0o600);
    this.#bytes = fstatSync(this.#file).size;
    return this.#file;
  }

  #rotate(): void {
    this.#close();
    const newest = rotatedFiles(this.dir).at(-1);
    // Two in one millisecond must not share a name, and a clock that was set back must not change the order.
    const stamp = Math.max(Date.now(), newest === undefined ? 0 : stampOf(newest) + 1);
    renameSync(join(this.dir, currentFile), join(this.dir, rotatedName(stamp)));
    this.#open();
    const old = rotatedFiles(this.dir).slice(0, -this.#options.files);
    for (const name of old) this.#drop(name);
  }

  /**
   * Removes an old file. What it ended with is stored first, so that the chain that is left still has a proven
   * beginning.
   */
  #drop(name: string): void {
    const path = join(this.dir, name);
    const last = parseChained(lastLineOf(path).text ?? "", this.#options.key);
    if (last !== undefined) {
      this.#dropped = { seq: last.seq, hash: last.hash };
      this.#writeHead();
    }
    rmSync(path, { force: true });
    const details = { file: name, ...(last === undefined ? {} : { upTo: last.seq, hash: last.hash }) };
    this.#append(this.#chain({ who: "server", what: "audit", result: "dropped", details }));
  }
}
