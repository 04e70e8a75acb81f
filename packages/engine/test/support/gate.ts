import { execFileSync } from "node:child_process";
import { closeSync, constants, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A point at which one shell script waits until the test lets it continue. */
export class Gate implements Disposable {
  /** The command with which the script waits. */
  readonly wait: string;
  readonly #dir = mkdtempSync(join(tmpdir(), "atoll-gate-"));
  readonly #fd: number;

  constructor() {
    const path = join(this.#dir, "gate");
    execFileSync("sh", ["-c", 'mkfifo "$0"', path]);
    this.wait = `read -r go <'${path}'`;
    // The FIFO is opened for reading too, so that neither side waits for the other to open it.
    this.#fd = openSync(path, constants.O_RDWR);
  }

  open(): void {
    writeSync(this.#fd, "go\n");
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
