import { endOutputProcessing } from "../host/output-processing.ts";

export interface TerminalSize {
  rows: number;
  cols: number;
}

/**
 * Resets the modes that a full-screen program may leave on when it is cut off: alternate screen, hidden cursor, mouse,
 * paste, colour.
 */
const resetModes =
  "\u001B[?1047l\u001B[?25h\u001B[?1000l\u001B[?1002l\u001B[?1003l\u001B[?1006l\u001B[?2004l\u001B[?1l\u001B>\u001B[0m";

/** The user's terminal in raw mode: every key goes to the program in the sandbox, Ctrl-C included. */
export class RawTerminal implements Disposable {
  readonly #stdin: NodeJS.ReadStream;
  readonly #stdout: NodeJS.WriteStream;
  readonly #restore = (): void => this[Symbol.dispose]();
  #isRaw = false;
  #isCutOff = true;

  /** Without `isWanted`, or if stdin is not a terminal, nothing is changed. */
  constructor(stdin: NodeJS.ReadStream, stdout: NodeJS.WriteStream, isWanted: boolean) {
    this.#stdin = stdin;
    this.#stdout = stdout;
    if (!isWanted || !stdin.isTTY) return;
    // The exit listener also runs if the process ends by an uncaught error.
    process.once("exit", this.#restore);
    stdin.setRawMode(true);
    endOutputProcessing();
    this.#isRaw = true;
  }

  get isRaw(): boolean {
    return this.#isRaw;
  }

  /** The program ended by itself, so it left the terminal as it wants it. */
  endedByItself(): void {
    this.#isCutOff = false;
  }

  [Symbol.dispose](): void {
    process.removeListener("exit", this.#restore);
    if (!this.#isRaw) return;
    this.#isRaw = false;
    this.#stdin.setRawMode(false);
    if (this.#isCutOff && this.#stdout.isTTY) this.#stdout.write(resetModes);
  }
}

export function terminalSize(stdout: NodeJS.WriteStream, stderr: NodeJS.WriteStream): TerminalSize {
  const terminal = [stdout, stderr].find((stream) => stream.isTTY && stream.rows > 0 && stream.columns > 0);
  return { rows: terminal?.rows ?? 24, cols: terminal?.columns ?? 80 };
}

/**
 * Calls `onSize` with the newest size after each change; changes during a call become one. Returns the function that
 * stops this.
 */
export function watchSize(
  stdout: NodeJS.WriteStream,
  stderr: NodeJS.WriteStream,
  onSize: (size: TerminalSize) => Promise<void>,
): () => void {
  let isCalling = false;
  let isStale = false;
  const changed = async (): Promise<void> => {
    isStale = true;
    if (isCalling) return;
    isCalling = true;
    while (isStale) {
      isStale = false;
      // A size that cannot be sent does not matter: the next one may be, and the stream reports its own end.
      await onSize(terminalSize(stdout, stderr)).catch(() => undefined);
    }
    isCalling = false;
  };
  const stream = stdout.isTTY ? stdout : stderr;
  const onResize = () => void changed();
  stream.on("resize", onResize);
  return () => stream.removeListener("resize", onResize);
}
