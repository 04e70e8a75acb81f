import {
  closeSync,
  existsSync,
  fdatasyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { SandboxError, type ApiEvent, type SandboxId } from "@atoll/protocol";
import { Bell } from "../support/bell.ts";
import { ownerToBe } from "./acting-principal.ts";
import { bootOfMachine, CursorReserve, syncDirectory } from "./cursor-reserve.ts";
import { FormerOwners } from "./former-owners.ts";
import { LineReader } from "./line-reader.ts";
import { SpentCursors } from "./spent-cursors.ts";

type WithoutCursor<T> = T extends unknown ? Omit<T, "cursor" | "atMs"> & { atMs?: number } : never;
/** An event before it has its place. */
export type NewEvent = WithoutCursor<Exclude<ApiEvent, { type: "events.lost" }>>;

/** An event with whose sandbox it is about, which clients are not told. */
interface Entry {
  event: ApiEvent;
  owner: string | undefined;
}

/**
 * No event: what is up to `cursor` was told, or is not for this follower. Whoever comes back with it misses nothing.
 */
export interface Passed {
  type: "passed";
  cursor: number;
}

/**
 * A follower is told its place after so many events that are not for it. The files hold far more, so it does not fall
 * out of them.
 */
const passedStep = 100;

/** In the file that begins with the cursor `start`. */
interface Place {
  start: number;
  offset: number;
}

/** `end`: where the next one stands. */
interface RecentEntry extends Entry {
  end: Place;
  bytes: number;
}

/** The first event from a cursor on, or none and where the next one will be; what lies between was lost. */
interface Found {
  cursor: number;
  entry?: Entry;
  place: Place | undefined;
}

export interface JournalOptions {
  /** Whose a sandbox is. Asked when something happens to it: later it may be gone. */
  ownerOf?: (sandboxId: SandboxId) => string | undefined;
  /** A file is closed at about this size, and another begun. */
  segmentBytes?: number;
  /** So many files are kept. */
  segments?: number;
  /** Events that are kept in memory for followers that are nearly up to date. */
  recentEvents?: number;
  /** They take no more than this, as they stand in the files. */
  recentBytes?: number;
  /** Which start of the machine this is. */
  boot?: string;
  /** Told when an event could not be written; `tell` goes on without it. */
  onError?: (error: unknown, event: NewEvent) => void;
  /** Told of every event that happens, at once and within what made it happen. */
  onEmit?: (event: NewEvent) => void;
}

export interface FollowEvents {
  /** The last event that the follower has; absent: only what happens from now on. */
  cursor?: number | undefined;
  sandboxId?: SandboxId | undefined;
  /** What it is told; absent: everything. `owner`: whose sandbox it is about, if it is about one and that was known. */
  sees?: (event: ApiEvent, owner: string | undefined) => boolean;
  signal: AbortSignal;
}

/**
 * What happened, in one order, on disk. An event is written before anybody is told, so a follower that comes back with
 * its cursor, also to the next server, misses nothing as long as the files reach back; beyond that it is told
 * `events.lost`.
 */
export class EventJournal {
  readonly #dir: string;
  readonly #options: Required<JournalOptions>;
  /** First cursors of the files, oldest first. */
  #starts: number[] = [];
  #file: number | undefined;
  #fileBytes = 0;
  #nextCursor = 1;
  readonly #burnt: SpentCursors;
  readonly #reserve: CursorReserve;
  /** Without gaps, up to the newest. */
  #recent: RecentEntry[] = [];
  #recentBytes = 0;
  #lines = new LineReader();
  #pastOwners = new FormerOwners();
  #bell = new Bell();
  #isClosed = false;

  private constructor(dir: string, options: JournalOptions) {
    this.#dir = dir;
    this.#options = {
      segmentBytes: 4 * 1024 * 1024,
      segments: 16,
      recentEvents: 2048,
      recentBytes: 4 * 1024 * 1024,
      ownerOf: () => undefined,
      boot: options.boot ?? bootOfMachine(),
      onError: () => undefined,
      onEmit: () => undefined,
      ...options,
    };
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.#burnt = new SpentCursors(dir);
    this.#reserve = new CursorReserve(dir, this.#options.boot);
  }

  static open(dir: string, options: JournalOptions = {}): EventJournal {
    const journal = new EventJournal(dir, options);
    journal.#recover();
    return journal;
  }

  /** The newest event's; 0 before the first. */
  get cursor(): number {
    return this.#nextCursor - 1;
  }

  /** Whose a sandbox is or, if it is gone, was. */
  ownerOf(sandboxId: SandboxId): string | undefined {
    return this.#options.ownerOf(sandboxId) ?? this.#pastOwners.get(sandboxId);
  }

  /**
   * Written when it returns, and told right after. Written without waiting, so that events stand in the order in which
   * they happened.
   */
  append(event: NewEvent): ApiEvent {
    this.#reserve.cover(this.#nextCursor);
    const complete = { cursor: this.#nextCursor, atMs: Date.now(), ...event } as ApiEvent;
    const owner = this.#ownerOf(complete);
    const line = Buffer.from(`${JSON.stringify({ ...complete, sandboxOwner: owner })}\n`);
    this.#write(line);
    this.#nextCursor += 1;
    const end = { start: this.#starts.at(-1) ?? 0, offset: this.#fileBytes };
    this.#keep({ event: complete, owner, end, bytes: line.byteLength });
    this.#bell.ring();
    return complete;
  }

  /**
   * When it throws, nothing of the line is there, and the event's cursor stays empty: that is how followers see that
   * one is missing.
   */
  #write(line: Buffer): void {
    try {
      const file = this.#fileWithRoom();
      for (let written = 0; written < line.byteLength;) {
        written += writeSync(file, line, written, line.byteLength - written, this.#fileBytes + written);
      }
    } catch (error) {
      if (this.#file !== undefined) ftruncateSync(this.#file, this.#fileBytes);
      this.#burnt.burn(this.#nextCursor);
      this.#nextCursor += 1;
      this.#forgetRecent();
      this.#bell.ring();
      throw error;
    }
    this.#fileBytes += line.byteLength;
  }

  #forgetRecent(): void {
    this.#recent = [];
    this.#recentBytes = 0;
  }

  #keep(entry: RecentEntry): void {
    const { event, owner, bytes } = entry;
    if ("sandboxId" in event && owner !== undefined) this.#pastOwners.remember(event.sandboxId, owner);
    this.#recent.push(entry);
    this.#recentBytes += bytes;
    const { recentEvents, recentBytes } = this.#options;
    while (this.#recent.length > recentEvents || this.#recentBytes > recentBytes) {
      this.#recentBytes -= this.#recent.shift()?.bytes ?? 0;
    }
  }

  /** For what has happened already, also when the disk has no room to say so. */
  emit(event: NewEvent): void {
    this.#options.onEmit(event);
    try {
      this.append(event);
    } catch (error) {
      this.#options.onError(error, event);
    }
  }

  /** Ends by `signal` only. */
  async *follow(options: FollowEvents): AsyncGenerator<ApiEvent, void, void> {
    for await (const step of this.steps(options)) if (step.type !== "passed") yield step;
  }

  /** As `follow`, with the follower's place: at once, and where events are passed over. */
  async *steps(options: FollowEvents): AsyncGenerator<ApiEvent | Passed, void, void> {
    const { cursor, sandboxId, sees = () => true, signal } = options;
    let last = cursor ?? this.cursor;
    // All that is kept for a follower: however slow it is, it holds one event and its place.
    let place: Place | undefined;
    const lost = (before: number): ApiEvent => ({ type: "events.lost", cursor: before - 1, atMs: Date.now(), before });
    if (last > this.cursor) {
      // Of a journal that is gone: whatever came between is not known here.
      last = this.cursor;
      yield lost(this.#nextCursor);
    } else {
      yield { type: "passed", cursor: last };
    }
    let told = last;
    for (;;) {
      signal.throwIfAborted();
      if (this.#isClosed) throw new SandboxError("unavailable", "Cannot follow events any further: the server stops");
      if (last === this.cursor) {
        await this.#bell.wait(signal);
        continue;
      }
      const found = await this.#next(last + 1, place);
      ({ place } = found);
      if (found.cursor > last + 1) {
        last = found.cursor - 1;
        told = last;
        yield lost(found.cursor);
      }
      if (found.entry === undefined) continue;
      const { event, owner } = found.entry;
      last = event.cursor;
      const isOfIt = sandboxId === undefined || ("sandboxId" in event && event.sandboxId === sandboxId);
      const isForIt = isOfIt && sees(event, owner);
      if (!isForIt && last - told < passedStep) continue;
      told = last;
      yield isForIt ? event : { type: "passed", cursor: last };
    }
  }

  /** Whoever follows is told `unavailable`. */
  close(): void {
    if (!this.#isClosed) this.#settle();
    this.#isClosed = true;
    this.#closeFile();
    this.#burnt.close();
    this.#bell.ring();
  }

  #settle(): void {
    try {
      if (this.#file !== undefined) fdatasyncSync(this.#file);
      syncDirectory(this.#dir);
      this.#reserve.close(this.cursor);
    } catch {
      // What the disk does not take for good counts as lost when the machine starts anew.
    }
  }

  /** One that is being made is nobody's yet, and one that is gone is nobody's any more. */
  #ownerOf(event: ApiEvent): string | undefined {
    if (!("sandboxId" in event)) return undefined;
    return this.ownerOf(event.sandboxId) ?? ownerToBe();
  }

  #closeFile(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  /** `place`: where it is looked for in the files, if that is known. */
  async #next(wanted: number, place: Place | undefined): Promise<Found> {
    const oldest = { start: this.#starts.findLast((first) => first <= wanted) ?? this.#starts[0] ?? 0, offset: 0 };
    let { start, offset } = place ?? oldest;
    for (;;) {
      const recent = this.#recent[wanted - (this.#recent[0]?.event.cursor ?? this.#nextCursor)];
      if (recent !== undefined) return { cursor: wanted, entry: recent, place: recent.end };
      const nextCursor = this.#nextCursor;
      const endsAt = start === this.#starts.at(-1) ? this.#fileBytes : Infinity;
      const line = await this.#lines.line(this.#path(start), offset, endsAt).catch(() => undefined);
      if (line !== undefined) {
        offset = line.next;
        const entry = parseEntry(line.text);
        if (entry === undefined || entry.event.cursor < wanted) continue;
        return { cursor: entry.event.cursor, entry, place: { start, offset } };
      }
      const following = this.#starts.find((first) => first > start);
      // What has come while the file was read may be in it.
      if (following === undefined && this.#nextCursor !== nextCursor) continue;
      if (following === undefined) return { cursor: nextCursor, place: { start, offset } };
      [start, offset] = [following, 0];
    }
  }

  #fileWithRoom(): number {
    if (this.#file !== undefined && this.#fileBytes < this.#options.segmentBytes) return this.#file;
    if (this.#isClosed) throw new Error("The journal is closed");
    this.#closeFile();
    this.#file = openSync(this.#path(this.#nextCursor), "w", 0o600);
    this.#fileBytes = 0;
    this.#starts.push(this.#nextCursor);
    while (this.#starts.length > this.#options.segments) {
      rmSync(this.#path(this.#starts.shift() ?? 0), { force: true });
    }
    return this.#file;
  }

  #recover(): void {
    this.#starts = readdirSync(this.#dir)
      .flatMap((name) => /^events-(\d+)\.jsonl$/.exec(name)?.[1] ?? [])
      .map(Number)
      .toSorted((a, b) => a - b);
    const start = this.#starts.at(-1);
    if (start !== undefined) this.#recoverFile(start);
    const given = Math.max(this.#burnt.cursor, this.#reserve.floor);
    if (given >= this.#nextCursor) {
      this.#nextCursor = given + 1;
      this.#forgetRecent();
    }
    this.#reserve.cover(this.#nextCursor);
  }

  #recoverFile(start: number): void {
    const path = this.#path(start);
    const { entries, bytes } = parseLines(readFileSync(path, "utf8"), start);
    // Half a line is an event that nobody was told of.
    truncateSync(path, bytes);
    for (const entry of entries) {
      // One that does not follow on the one before it: some between them were lost.
      if (entry.event.cursor !== (this.#recent.at(-1)?.event.cursor ?? 0) + 1) this.#forgetRecent();
      this.#keep(entry);
    }
    this.#nextCursor = (entries.at(-1)?.event.cursor ?? start - 1) + 1;
    this.#fileBytes = bytes;
    if (existsSync(path)) this.#file = openSync(path, "r+");
  }

  #path(start: number): string {
    return join(this.#dir, `events-${String(start).padStart(16, "0")}.jsonl`);
  }
}

/** `bytes`: how far the whole lines go. */
function parseLines(text: string, start: number): { entries: RecentEntry[]; bytes: number } {
  const entries: RecentEntry[] = [];
  let offset = 0;
  const lines = text.split("\n");
  lines.pop();
  for (const line of lines) {
    const entry = parseEntry(line);
    if (entry === undefined) break;
    const bytes = Buffer.byteLength(line) + 1;
    offset += bytes;
    entries.push({ ...entry, bytes, end: { start, offset } });
  }
  return { entries, bytes: offset };
}

function parseEntry(line: string): Entry | undefined {
  try {
    const { sandboxOwner: owner, ...event } = JSON.parse(line) as ApiEvent & { sandboxOwner?: string };
    return { event, owner };
  } catch {
    return undefined;
  }
}
