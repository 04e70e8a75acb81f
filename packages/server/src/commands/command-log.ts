import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { OutputPosition } from "@atoll/engine";
import { isSandboxError } from "@atoll/protocol";
import { Bell } from "../support/bell.ts";
import type { OutputPiece } from "./log-record.ts";
import { LogSegment } from "./log-segment.ts";

/** The tail is dropped in segments of this fraction of its size. */
const tailSegments = 8;
/** A piece up to this length is kept in memory for followers. */
const newestBytes = 16 * 1024;

/**
 * The output of one command on disk. A quarter of `logBytes` is kept from the beginning, the rest from the end; what
 * lies between is dropped, whole segments at a time, and the number of dropped bytes is exact. The log survives a crash
 * at any moment: what was appended stays, and half a record is cut off.
 */
export class CommandLog {
  readonly #dir: string;
  readonly #headBytes: number;
  readonly #tailBytes: number;
  #head: LogSegment;
  #tail: LogSegment[] = [];
  #position: OutputPosition = { stdoutBytes: 0, stderrBytes: 0 };
  /**
   * Bytes that are missing at the end of an ended command's log: they were dropped, or the machine failed before the
   * disk had them.
   */
  #missingBytes = 0;
  #isComplete = false;
  #interruption: Error | undefined;
  /** The newest piece, while the command runs: a follower that has all before it need not read it from the disk. */
  #newest: OutputPiece | undefined;
  #bell = new Bell();

  private constructor(dir: string, logBytes: number) {
    this.#dir = dir;
    this.#headBytes = Math.floor(logBytes / 4);
    this.#tailBytes = logBytes - this.#headBytes;
    this.#head = new LogSegment(join(dir, "head"), 0);
  }

  /** Returns a log that has nothing on disk yet. */
  static create(dir: string, logBytes: number): CommandLog {
    return new CommandLog(dir, logBytes);
  }

  /** Opens the log that an earlier server left, to append to it. */
  static async open(dir: string, logBytes: number): Promise<CommandLog> {
    const log = new CommandLog(dir, logBytes);
    await log.#recover();
    return log;
  }

  /**
   * Opens the log of a command that ended with this amount of output. Output that the disk does not have is reported as
   * dropped: output is not flushed to the disk, so after a loss of power the disk may have the end of a command but not
   * all of its output.
   */
  static async openEnded(dir: string, logBytes: number, ended: OutputPosition): Promise<CommandLog> {
    const log = await CommandLog.open(dir, logBytes);
    const missingBytes = ended.stdoutBytes + ended.stderrBytes - log.endAt;
    if (missingBytes > 0) {
      log.#missingBytes = missingBytes;
      log.#position = { ...ended };
    }
    await log.complete();
    return log;
  }

  /** The number of bytes that were ever appended, per stream. */
  get position(): OutputPosition {
    return { ...this.#position };
  }

  get endAt(): number {
    return this.#position.stdoutBytes + this.#position.stderrBytes;
  }

  get droppedBytes(): number {
    const first = this.#tail[0];
    return this.#missingBytes + (first === undefined ? 0 : first.startAt - this.#head.endAt);
  }

  /** True when no more output follows. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /**
   * Appends a piece. Calls must not overlap, and come in order. When it resolves, a crash of this process does not lose
   * the piece.
   */
  async append(piece: OutputPiece): Promise<void> {
    // After a write that failed in the middle, the caller sends the same piece again.
    let { at, offset, data } = skipTo(piece, this.endAt);
    while (data.byteLength > 0) {
      const segment = await this.#segmentWithRoom();
      const room = (segment === this.#head ? this.#headBytes : this.#segmentBytes) - segment.dataBytes;
      const part = data.subarray(0, room);
      const stored = { stream: piece.stream, at, offset, data: part };
      await segment.append(stored);
      // This is a copy, because the caller may reuse the bytes when this resolves.
      this.#newest = part.byteLength > newestBytes ? undefined : { ...stored, data: Buffer.from(part) };
      this.#position[piece.stream === "stdout" ? "stdoutBytes" : "stderrBytes"] += part.byteLength;
      at += part.byteLength;
      offset += part.byteLength;
      data = data.subarray(part.byteLength);
      this.#bell.ring();
    }
  }

  /** Marks the end of the output: followers that have read everything end. */
  async complete(): Promise<void> {
    this.#isComplete = true;
    this.#newest = undefined;
    this.#bell.ring();
    await this.release();
  }

  /** Ends all followers with `reason`, although the log is not complete. */
  interrupt(reason: Error): void {
    this.#interruption = reason;
    this.#bell.ring();
  }

  /** Throws if the sandbox was rolled back, because the files may then belong to the log from before. */
  assertNotRolledBack(): void {
    if (isSandboxError(this.#interruption, "rolled_back")) throw this.#interruption;
  }

  /**
   * Forgets the files of a complete log, which the caller removes. Followers that still read get the rest as dropped.
   */
  forget(): void {
    this.#head = new LogSegment(this.#head.path, 0);
    this.#tail = [];
    this.#missingBytes = this.endAt;
  }

  /** Closes the file, so that another server may open it. */
  async release(): Promise<void> {
    await (this.#tail.at(-1) ?? this.#head).close();
  }

  /** Resolves when there may be more bytes, or the end. */
  async changed(signal?: AbortSignal): Promise<void> {
    if (this.#interruption !== undefined) throw this.#interruption;
    await this.#bell.wait(signal);
  }

  /** Returns the newest piece if it has the byte `at` and is in memory. */
  newestWith(at: number): OutputPiece | undefined {
    const piece = this.#newest;
    return piece !== undefined && piece.at <= at && at < piece.at + piece.data.byteLength ? piece : undefined;
  }

  /**
   * Returns the segment that has the byte `at`, or the first one behind it if that byte was dropped. It returns
   * `undefined` if the byte and all that follows were dropped.
   */
  segmentFrom(at: number): LogSegment | undefined {
    if (at < this.#head.endAt) return this.#head;
    return this.#tail.find(({ endAt }) => at < endAt);
  }

  get #segmentBytes(): number {
    return Math.ceil(this.#tailBytes / tailSegments);
  }

  async #segmentWithRoom(): Promise<LogSegment> {
    if (this.#tail.length === 0 && this.#head.dataBytes < this.#headBytes) {
      if (this.#head.dataBytes === 0) await mkdir(this.#dir, { recursive: true, mode: 0o700 });
      return this.#head;
    }
    const last = this.#tail.at(-1);
    if (last !== undefined && last.dataBytes < this.#segmentBytes) return last;
    await (last ?? this.#head).close();
    await this.#makeRoom();
    const next = new LogSegment(this.#segmentPath(this.endAt), this.endAt);
    this.#tail.push(next);
    return next;
  }

  async #makeRoom(): Promise<void> {
    const kept = (): number => this.#tail.reduce((sum, { dataBytes }) => sum + dataBytes, 0);
    while (kept() + this.#segmentBytes > this.#tailBytes) {
      const oldest = this.#tail.shift();
      if (oldest === undefined) return;
      await rm(oldest.path, { force: true });
    }
  }

  async #recover(): Promise<void> {
    const found = (await readdir(this.#dir).catch(ignoreMissing)) ?? [];
    const names = found.filter((name) => name.startsWith("tail-")).toSorted();
    this.#tail = names.map((name) => new LogSegment(join(this.#dir, name), Number(name.slice("tail-".length))));
    for (let last = this.#tail.at(-1); last !== undefined; last = this.#tail.at(-1)) {
      const position = await last.recover();
      if (position !== undefined) {
        this.#position = position;
        break;
      }
      // The segment was created but never written to.
      await rm(last.path, { force: true });
      this.#tail.pop();
    }
    for (const [index, segment] of this.#tail.slice(0, -1).entries()) {
      const next = this.#tail[index + 1];
      if (next !== undefined) await segment.adopt(next.startAt);
    }
    const position = await this.#head.recover().catch(ignoreMissing);
    if (this.#tail.length === 0 && position !== undefined) this.#position = position;
  }

  #segmentPath(startAt: number): string {
    return join(this.#dir, `tail-${String(startAt).padStart(16, "0")}`);
  }
}

function skipTo(piece: OutputPiece, at: number): OutputPiece {
  const skipped = at - piece.at;
  if (skipped < 0) throw new Error(`Output at ${piece.at} does not continue a log that ends at ${at}`);
  return { ...piece, at, offset: piece.offset + skipped, data: piece.data.subarray(skipped) };
}

function ignoreMissing(error: unknown): undefined {
  if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
  throw error;
}
