import { closeSync, constants, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const digits = 16;

/**
 * The last cursor of an event that could not be written: no line has it, and no event may have it again. Its file is
 * opened with its final length before anything fails, so that writing it takes neither space on the disk nor a
 * descriptor.
 */
export class SpentCursors {
  /** The cursor; 0 if there is none. */
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

  spend(cursor: number): void {
    if (this.#isClosed) return;
    this.#cursor = cursor;
    this.#write();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // A write that failed before, as on a disk that is read-only for a time, may succeed now.
    if (!this.#isWritten) this.#write();
    if (this.#file !== undefined) closeSync(this.#file);
  }

  /**
   * Writes the cursor. It does not throw: the caller has a failure of its own to report, and a server has to start on a
   * full disk, too.
   */
  #write(): void {
    this.#isWritten = false;
    try {
      // The file is not truncated, because overwriting needs no space.
      this.#file ??= openSync(this.#path, constants.O_RDWR | constants.O_CREAT, 0o600);
      writeSync(this.#file, `${String(this.#cursor).padStart(digits, "0")}\n`, 0);
      this.#isWritten = true;
    } catch {
      // The next cursor, or `close`, tries again.
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
