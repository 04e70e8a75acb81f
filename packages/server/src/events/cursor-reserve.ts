import { closeSync, constants, fdatasyncSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const digits = 16;
/** Few enough that cursors never run out, and so many that the disk is waited for about never. */
const step = 1_000_000;

/**
 * `until`: none above was given to an event. `floor`: none up to it may be given again, whatever the files of events
 * say.
 */
interface Reserved {
  until: number;
  floor: number;
  boot: string;
}

/**
 * Which cursors may have been given to events that a loss of power has taken from the disk. Events are not forced to
 * the disk; instead a range of cursors is, before the first of it is given. On a machine that was started anew all of
 * the range counts as given, unless the journal was closed.
 */
export class CursorReserve {
  /** No event may have this cursor or a lower one that is not written. */
  readonly floor: number;
  readonly #dir: string;
  readonly #boot: string;
  #until = 0;
  #file: number | undefined;

  constructor(dir: string, boot: string) {
    this.#dir = dir;
    this.#boot = boot;
    const found = read(pathIn(dir));
    this.floor = found.boot === boot ? found.floor : found.until;
  }

  /** Before an event gets this cursor. */
  cover(cursor: number): void {
    if (cursor > this.#until) this.#write(cursor + step);
  }

  /** All events up to this one are on the disk. */
  close(last: number): void {
    this.#write(last);
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  /** Does not throw: a server starts on a full disk, too. What is written over needs no room there. */
  #write(until: number): void {
    try {
      this.#file ??= this.#open();
      writeSync(this.#file, `${padded(until)} ${padded(this.floor)} ${this.#boot}\n`, 0);
      fdatasyncSync(this.#file);
      this.#until = until;
    } catch {
      // The next event tries again.
    }
  }

  #open(): number {
    const file = openSync(pathIn(this.#dir), constants.O_RDWR | constants.O_CREAT, 0o600);
    syncDirectory(this.#dir);
    return file;
  }
}

/** Changes with every start of the machine. */
export function bootOfMachine(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}

export function syncDirectory(path: string): void {
  const directory = openSync(path, "r");
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

function pathIn(dir: string): string {
  return join(dir, "reserved-cursors");
}

function padded(cursor: number): string {
  return String(cursor).padStart(digits, "0");
}

function read(path: string): Reserved {
  try {
    const [, until, floor, boot = ""] = /^(\d{16}) (\d{16}) (.+)$/m.exec(readFileSync(path, "utf8")) ?? [];
    return { until: Number(until ?? 0), floor: Number(floor ?? 0), boot };
  } catch {
    return { until: 0, floor: 0, boot: "" };
  }
}
