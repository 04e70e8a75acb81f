import { endOutputProcessing } from "../host/output-processing.ts";

export interface TerminalSize {
  rows: number;
  cols: number;
}

/**
 * Modes that a full-screen program inside may leave on when it is cut off: other screen, hidden cursor, mouse, paste,
 * colour.
 */
const calmDown =
  "\u001B[?1047l\u001B[?25h\u001B[?1000l\u001B[?1002l\u001B[?1003l\u001B[?1006l\u001B[?2004l\u001B[?1l\u001B>\u001B[0m";

/** The user's terminal handed to a program inside: every key goes there, Ctrl-C included. */
export class RawTerminal implements Disposable {
  readonly #stdin: NodeJS.ReadStream;
  readonly #stdout: NodeJS.WriteStream;
  readonly #restore = (): void => this[Symbol.dispose]();
  #isRaw = false;
  #isCutOff = true;

  /** Where it is not wanted, or stdin is no terminal, nothing is changed. */
  constructor(stdin: NodeJS.ReadStream, stdout: NodeJS.WriteStream, isWanted: boolean) {
    this.#stdin = stdin;
    this.#stdout = stdout;
    if (!isWanted || !stdin.isTTY) return;
    // Also when the process ends without unwinding: an error that nobody caught still lets exit listeners run.
    process.once("exit", this.#restore);
    stdin.setRawMode(true);
    endOutputProcessing();
    this.#isRaw = true;
  }

  get isRaw(): boolean {
    return this.#isRaw;
  }

  /** The program inside ended by itself, and so left the terminal as it wants it. */
  endedByItself(): void {
    this.#isCutOff = false;
  }

  [Symbol.dispose](): void {
    process.removeListener("exit", this.#restore);
    if (!this.#isRaw) return;
    this.#isRaw = false;
    this.#stdin.setRawMode(false);
    if (this.#isCutOff && this.#stdout.isTTY) this.#stdout.write(calmDown);
  }
}

export function terminalSize(stdout: NodeJS.WriteStream, stderr: NodeJS.WriteStream): TerminalSize {
  const terminal = [stdout, stderr].find((stream) => stream.isTTY && stream.rows > 0 && stream.columns > 0);
  return { rows: terminal?.rows ?? 24, cols: terminal?.columns ?? 80 };
}

/**
 * Calls with the newest size after each change; changes that come during a call are told as one. Returns what ends it.
 */
export function watchSize(
  stdout: NodeJS.WriteStream,
  stderr: NodeJS.WriteStream,
  onSize: (size: TerminalSize) => Promise<void>,
): () => void {
  let isTelling = false;
  let isStale = false;
  const changed = async (): Promise<void> => {
    isStale = true;
    if (isTelling) return;
    isTelling = true;
    while (isStale) {
      isStale = false;
      // A size that cannot be told is of no consequence: the next one may be, and the stream tells of its own end.
      await onSize(terminalSize(stdout, stderr)).catch(() => undefined);
    }
    isTelling = false;
  };
  const stream = stdout.isTTY ? stdout : stderr;
  const onResize = () => void changed();
  stream.on("resize", onResize);
  return () => stream.removeListener("resize", onResize);
}
