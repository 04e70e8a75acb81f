import { closeSync, constants, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const digits = 16;

/**
 * The last cursor of an event that could not be written: no line has it, and no event may have it again. Its file is
 * open and has its length before anything goes wrong, so that writing it takes neither room on the disk nor a
 * descriptor.
 */
export class SpentCursors {
  /** 0: none. */
  #cursor: number;
  readonly #path: string;
  #file: number | undefined;
  #isWritten = true;
  #isClosed = false;

  constructor(dir: string) {
    this.#path = join(dir, "burnt-cursor");
    this.#cursor = read(this.#path);
    this.#write();
  }

  get cursor(): number {
    return this.#cursor;
  }

  burn(cursor: number): void {
    if (this.#isClosed) return;
    this.#cursor = cursor;
    this.#write();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // What failed before, as on a disk that cannot be written at all, may go now.
    if (!this.#isWritten) this.#write();
    if (this.#file !== undefined) closeSync(this.#file);
  }

  /**
   * Does not throw: whoever burns a cursor has a failure of its own to tell, and a server starts on a full disk, too.
   */
  #write(): void {
    this.#isWritten = false;
    try {
      // Not emptied: what is written over needs no room.
      this.#file ??= openSync(this.#path, constants.O_RDWR | constants.O_CREAT, 0o600);
      writeSync(this.#file, `${String(this.#cursor).padStart(digits, "0")}\n`, 0);
      this.#isWritten = true;
    } catch {
      // The next one, or the end, tries again.
    }
  }
}

function read(path: string): number {
  try {
    return Number(/^\d{16}$/m.exec(readFileSync(path, "utf8"))?.[0] ?? 0);
  } catch {
    return 0;
  }
}
