import { closeSync, constants, fdatasyncSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const digits = 16;
/** The step is so small that cursors never run out, and so large that events hardly ever wait for the disk. */
const step = 1_000_000;

/**
 * A reservation: no cursor above `until` was given to an event, and no cursor up to `floor` may be given again,
 * whatever the event files say.
 */
interface Reserved {
  until: number;
  floor: number;
  boot: string;
}

/**
 * Reserves cursors, so that none is given twice after a loss of power took events from the disk. Events are not flushed
 * to the disk; instead a range of cursors is, before the first of the range is given. After a restart of the machine
 * the whole range counts as given, unless the journal was closed.
 */
export class CursorReserve {
  /** An event that is not in the files must have a cursor above this one. */
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

  /** Reserves a cursor before an event gets it. */
  cover(cursor: number): void {
    if (cursor > this.#until) this.#write(cursor + step);
  }

  /** Records that all events up to this one are on the disk. */
  close(last: number): void {
    this.#write(last);
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }

  /**
   * Writes the reservation. It does not throw, because a server has to start on a full disk, too; overwriting a file
   * needs no free space.
   */
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

/** Returns an id that changes with every start of the machine. */
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
