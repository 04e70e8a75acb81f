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
import { ownerOfNewSandbox } from "./acting-principal.ts";
import { bootOfMachine, CursorReserve, syncDirectory } from "./cursor-reserve.ts";
import { FormerOwners } from "./former-owners.ts";
import { LineReader } from "./line-reader.ts";
import { SpentCursors } from "./spent-cursors.ts";

type WithoutCursor<T> = T extends unknown ? Omit<T, "cursor" | "atMs"> & { atMs?: number } : never;
/** An event without its cursor. */
export type NewEvent = WithoutCursor<Exclude<ApiEvent, { type: "events.lost" }>>;

/** An event with the owner of its sandbox, which clients do not see. */
interface Entry {
  event: ApiEvent;
  owner: string | undefined;
}

/**
 * A marker that is not an event: events up to `cursor` were emitted, or are not for this follower. A follower that
 * returns with this cursor misses nothing.
 */
export interface Passed {
  type: "passed";
  cursor: number;
}

/**
 * The number of events not for a follower after which it gets its cursor. The files hold far more, so a follower does
 * not fall out of them.
 */
const passedStep = 100;

/** A place in the file that begins with the cursor `start`. */
interface Place {
  start: number;
  offset: number;
}

/** A recent event; `end` is the place of the next one. */
interface RecentEntry extends Entry {
  end: Place;
  bytes: number;
}

/**
 * The first event from a cursor on, or only the cursor of the next one if there is none. Cursors between the wanted and
 * the found one were lost.
 */
interface Found {
  cursor: number;
  entry?: Entry;
  place: Place | undefined;
}

export interface JournalOptions {
  /** Returns the owner of a sandbox. It is called when an event is emitted, because the sandbox may be gone later. */
  ownerOf?: (sandboxId: SandboxId) => string | undefined;
  /** The approximate size at which a file is closed and another one begun. */
  segmentBytes?: number;
  /** The number of files that are kept. */
  segments?: number;
  /** The number of events that are kept in memory for followers that are nearly up to date. */
  recentEvents?: number;
  /** The limit for the memory of these events, in bytes of their lines. */
  recentBytes?: number;
  /** The id of the current start of the machine. */
  boot?: string;
  /** Called when an event could not be written; `emit` goes on without it. */
  onError?: (error: unknown, event: NewEvent) => void;
  /** Called for every event, synchronously within the action that caused it. */
  onEmit?: (event: NewEvent) => void;
}

export interface FollowEvents {
  /** The cursor of the last event that the follower has; absent for only new events. */
  cursor?: number | undefined;
  sandboxId?: SandboxId | undefined;
  /**
   * Selects the events that the follower gets; absent for all. `owner` is the owner of the event's sandbox, if there is
   * one and it was known.
   */
  sees?: (event: ApiEvent, owner: string | undefined) => boolean;
  signal: AbortSignal;
}

/**
 * All events in one order, on disk. An event is written before it is emitted, so a follower that returns with its
 * cursor, also to the next server process, misses nothing as long as the files reach back; beyond that it gets
 * `events.lost`.
 */
export class EventJournal {
  readonly #dir: string;
  readonly #options: Required<JournalOptions>;
  /** The first cursors of the files, oldest first. */
  #starts: number[] = [];
  #file: number | undefined;
  #fileBytes = 0;
  #nextCursor = 1;
  readonly #spent: SpentCursors;
  readonly #reserve: CursorReserve;
  /** The newest events, without gaps. */
  #recent: RecentEntry[] = [];
  #recentBytes = 0;
  #lines = new LineReader();
  #formerOwners = new FormerOwners();
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
    this.#spent = new SpentCursors(dir);
    this.#reserve = new CursorReserve(dir, this.#options.boot);
  }

  static open(dir: string, options: JournalOptions = {}): EventJournal {
    const journal = new EventJournal(dir, options);
    journal.#recover();
    return journal;
  }

  /** The cursor of the newest event; 0 before the first. */
  get cursor(): number {
    return this.#nextCursor - 1;
  }

  /** Returns the owner of a sandbox, also after the sandbox is gone. */
  ownerOf(sandboxId: SandboxId): string | undefined {
    return this.#options.ownerOf(sandboxId) ?? this.#formerOwners.get(sandboxId);
  }

  /**
   * Writes an event and then wakes followers. Writing is synchronous, so that events are in the order in which they
   * happened.
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
   * Writes a line. When it throws, no part of the line is in the file, and its cursor stays unused: this is how
   * followers see that an event is missing.
   */
  #write(line: Buffer): void {
    try {
      const file = this.#fileWithRoom();
      for (let written = 0; written < line.byteLength;) {
        written += writeSync(file, line, written, line.byteLength - written, this.#fileBytes + written);
      }
    } catch (error) {
      if (this.#file !== undefined) ftruncateSync(this.#file, this.#fileBytes);
      this.#spent.spend(this.#nextCursor);
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
    if ("sandboxId" in event && owner !== undefined) this.#formerOwners.remember(event.sandboxId, owner);
    this.#recent.push(entry);
    this.#recentBytes += bytes;
    const { recentEvents, recentBytes } = this.#options;
    while (this.#recent.length > recentEvents || this.#recentBytes > recentBytes) {
      this.#recentBytes -= this.#recent.shift()?.bytes ?? 0;
    }
  }

  /** Records an event about something that has already happened, and does not throw when the disk is full. */
  emit(event: NewEvent): void {
    this.#options.onEmit(event);
    try {
      this.append(event);
    } catch (error) {
      this.#options.onError(error, event);
    }
  }

  /** Yields events until `signal` aborts. */
  async *follow(options: FollowEvents): AsyncGenerator<ApiEvent, void, void> {
    for await (const step of this.steps(options)) if (step.type !== "passed") yield step;
  }

  /** Yields the same as `follow`, and the follower's cursor: once at the start, and where events are skipped. */
  async *steps(options: FollowEvents): AsyncGenerator<ApiEvent | Passed, void, void> {
    const { cursor, sandboxId, sees = () => true, signal } = options;
    let last = cursor ?? this.cursor;
    // This is all that is kept for a follower: a slow one holds one event and its place.
    let place: Place | undefined;
    const lost = (before: number): ApiEvent => ({ type: "events.lost", cursor: before - 1, atMs: Date.now(), before });
    if (last > this.cursor) {
      // The cursor is from a journal that is gone: what came between is not known here.
      last = this.cursor;
      yield lost(this.#nextCursor);
    } else {
      yield { type: "passed", cursor: last };
    }
    let reported = last;
    for (;;) {
      signal.throwIfAborted();
      if (this.#isClosed) throw new SandboxError("unavailable", "Cannot follow events further: the server stops");
      if (last === this.cursor) {
        await this.#bell.wait(signal);
        continue;
      }
      const found = await this.#next(last + 1, place);
      ({ place } = found);
      if (found.cursor > last + 1) {
        last = found.cursor - 1;
        reported = last;
        yield lost(found.cursor);
      }
      if (found.entry === undefined) continue;
      const { event, owner } = found.entry;
      last = event.cursor;
      const isOfIt = sandboxId === undefined || ("sandboxId" in event && event.sandboxId === sandboxId);
      const isForIt = isOfIt && sees(event, owner);
      if (!isForIt && last - reported < passedStep) continue;
      reported = last;
      yield isForIt ? event : { type: "passed", cursor: last };
    }
  }

  /** Ends all followers with `unavailable`. */
  close(): void {
    if (!this.#isClosed) this.#flush();
    this.#isClosed = true;
    this.#closeFile();
    this.#spent.close();
    this.#bell.ring();
  }

  #flush(): void {
    try {
      if (this.#file !== undefined) fdatasyncSync(this.#file);
      syncDirectory(this.#dir);
      this.#reserve.close(this.cursor);
    } catch {
      // Events that could not be flushed count as lost after a restart of the machine.
    }
  }

  /** Returns the owner of the sandbox. A sandbox that is being created, or is gone, is not registered. */
  #ownerOf(event: ApiEvent): string | undefined {
    if (!("sandboxId" in event)) return undefined;
    return this.ownerOf(event.sandboxId) ?? ownerOfNewSandbox();
  }

  #closeFile(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  /** Finds the next event. `place` is where to look in the files, if it is known. */
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
      // The file may have grown while it was read.
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
    const given = Math.max(this.#spent.cursor, this.#reserve.floor);
    if (given >= this.#nextCursor) {
      this.#nextCursor = given + 1;
      this.#forgetRecent();
    }
    this.#reserve.cover(this.#nextCursor);
  }

  #recoverFile(start: number): void {
    const path = this.#path(start);
    const { entries, bytes } = parseLines(readFileSync(path, "utf8"), start);
    // Half a line is an event that no client received.
    truncateSync(path, bytes);
    for (const entry of entries) {
      // Events are missing between this one and the one before it.
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

/** Parses whole lines; `bytes` is their total length. */
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
