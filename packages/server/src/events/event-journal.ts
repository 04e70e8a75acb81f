import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError, type ApiEvent, type SandboxId } from "@atoll/protocol";
import { Bell } from "../support/bell.ts";
import { ownerToBe } from "./on-behalf.ts";
import { PastOwners } from "./past-owners.ts";

type WithoutCursor<T> = T extends unknown ? Omit<T, "cursor" | "atMs"> & { atMs?: number } : never;
/** An event before it has its place. */
export type NewEvent = WithoutCursor<Exclude<ApiEvent, { type: "events.lost" }>>;

/** An event with whose sandbox it is about, which clients are not told. */
interface Entry {
  event: ApiEvent;
  owner: string | undefined;
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
  /** Told when an event could not be written; `tell` goes on without it. */
  onError?: (error: unknown, event: NewEvent) => void;
  /** Told of every event that happens, at once and within what made it happen. */
  onTell?: (event: NewEvent) => void;
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
 * What happened, in one order, on disk. An event is written before anybody is told, so a follower that comes back with its cursor, also to
 * the next server, misses nothing as long as the files reach back; beyond that it is told `events.lost`.
 */
export class EventJournal {
  readonly #dir: string;
  readonly #options: Required<JournalOptions>;
  /** First cursors of the files, oldest first. */
  #starts: number[] = [];
  #file: number | undefined;
  #fileBytes = 0;
  #nextCursor = 1;
  #recent: Entry[] = [];
  #pastOwners = new PastOwners();
  #bell = new Bell();
  #isClosed = false;

  private constructor(dir: string, options: JournalOptions) {
    this.#dir = dir;
    this.#options = {
      segmentBytes: 4 * 1024 * 1024,
      segments: 16,
      recentEvents: 2048,
      ownerOf: () => undefined,
      onError: () => undefined,
      onTell: () => undefined,
      ...options,
    };
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

  /** Written when it returns, and told right after. Written without waiting, so that events stand in the order in which they happened. */
  append(event: NewEvent): ApiEvent {
    const complete = { cursor: this.#nextCursor, atMs: Date.now(), ...event } as ApiEvent;
    const owner = this.#ownerOf(complete);
    const line = Buffer.from(`${JSON.stringify({ ...complete, sandboxOwner: owner })}\n`);
    const file = this.#fileWithRoom();
    for (let written = 0; written < line.byteLength;) {
      written += writeSync(file, line, written, line.byteLength - written, this.#fileBytes + written);
    }
    this.#fileBytes += line.byteLength;
    this.#nextCursor += 1;
    this.#remember({ event: complete, owner });
    this.#recent.push({ event: complete, owner });
    if (this.#recent.length > this.#options.recentEvents) this.#recent.shift();
    this.#bell.ring();
    return complete;
  }

  /** For what has happened already, also when the disk has no room to say so. */
  tell(event: NewEvent): void {
    this.#options.onTell(event);
    try {
      this.append(event);
    } catch (error) {
      this.#options.onError(error, event);
    }
  }

  /** Ends by `signal` only. */
  async *follow({ cursor, sandboxId, sees = () => true, signal }: FollowEvents): AsyncGenerator<ApiEvent, void, void> {
    let last = cursor ?? this.cursor;
    const lost = (before: number): ApiEvent => ({ type: "events.lost", cursor: before - 1, atMs: Date.now(), before });
    if (last > this.cursor) {
      // Of a journal that is gone: whatever came between is not known here.
      last = this.cursor;
      yield lost(this.#nextCursor);
    }
    for (;;) {
      signal.throwIfAborted();
      if (this.#isClosed) throw new SandboxError("unavailable", "Cannot follow events any further: the server stops");
      if (last === this.cursor) {
        await this.#bell.wait(signal);
        continue;
      }
      const oldest = this.#starts[0] ?? this.#nextCursor;
      if (last + 1 < oldest) {
        last = oldest - 1;
        yield lost(oldest);
      }
      for (const { event, owner } of await this.#read(last + 1)) {
        last = event.cursor;
        if (sandboxId !== undefined && !("sandboxId" in event && event.sandboxId === sandboxId)) continue;
        if (sees(event, owner)) yield event;
      }
    }
  }

  /** Whoever follows is told `unavailable`. */
  close(): void {
    this.#isClosed = true;
    this.#closeFile();
    this.#bell.ring();
  }

  /** One that is being made is nobody's yet, and one that is gone is nobody's any more. */
  #ownerOf(event: ApiEvent): string | undefined {
    if (!("sandboxId" in event)) return undefined;
    const { sandboxId } = event;
    return this.#options.ownerOf(sandboxId) ?? this.#pastOwners.get(sandboxId) ?? ownerToBe();
  }

  #remember({ event, owner }: Entry): void {
    if ("sandboxId" in event && owner !== undefined) this.#pastOwners.remember(event.sandboxId, owner);
  }

  #closeFile(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  /** From `cursor` on, as many as are at hand; none if they were dropped meanwhile. */
  async #read(cursor: number): Promise<Entry[]> {
    const oldestRecent = this.#recent[0]?.event.cursor ?? this.#nextCursor;
    if (cursor >= oldestRecent) return this.#recent.slice(cursor - oldestRecent);
    const start = this.#starts.findLast((first) => first <= cursor);
    if (start === undefined) return [];
    const text = await readFile(this.#path(start), "utf8").catch(() => "");
    return parseLines(text).entries.filter(({ event }) => event.cursor >= cursor);
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
    mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
    this.#starts = readdirSync(this.#dir)
      .flatMap((name) => /^events-(\d+)\.jsonl$/.exec(name)?.[1] ?? [])
      .map(Number)
      .toSorted((a, b) => a - b);
    const start = this.#starts.at(-1);
    if (start === undefined) return;
    const path = this.#path(start);
    const { entries, bytes } = parseLines(readFileSync(path, "utf8"));
    // Half a line is an event that nobody was told of.
    truncateSync(path, bytes);
    this.#recent = entries.slice(-this.#options.recentEvents);
    for (const entry of entries) this.#remember(entry);
    this.#nextCursor = (entries.at(-1)?.event.cursor ?? start - 1) + 1;
    this.#fileBytes = bytes;
    if (existsSync(path)) this.#file = openSync(path, "r+");
  }

  #path(start: number): string {
    return join(this.#dir, `events-${String(start).padStart(16, "0")}.jsonl`);
  }
}

/** `bytes`: how far the whole lines go. */
function parseLines(text: string): { entries: Entry[]; bytes: number } {
  const entries: Entry[] = [];
  let bytes = 0;
  const lines = text.split("\n");
  lines.pop();
  for (const line of lines) {
    try {
      const { sandboxOwner: owner, ...event } = JSON.parse(line) as ApiEvent & { sandboxOwner?: string };
      entries.push({ event, owner });
    } catch {
      break;
    }
    bytes += Buffer.byteLength(line) + 1;
  }
  return { entries, bytes };
}
