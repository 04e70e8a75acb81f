/** Where lines cannot be overwritten, one line in this time is enough to show progress. */
const quietMs = 5_000;

/** Prints progress on stderr; stdout contains only the result. */
export class Progress {
  #topic = "";
  #printedAtMs = 0;
  #isTerminal = process.stderr.isTTY;

  start(topic: string): void {
    this.#topic = topic;
    this.#printedAtMs = 0;
    this.report("setting up");
  }

  report(text: string): void {
    if (this.#isTerminal) {
      process.stderr.write(`\r\u001B[K${this.#topic}: ${text}`);
      return;
    }
    const nowMs = performance.now();
    if (this.#printedAtMs !== 0 && nowMs - this.#printedAtMs < quietMs) return;
    this.#printedAtMs = nowMs;
    process.stderr.write(`${this.#topic}: ${text}\n`);
  }

  /** Clears the line. */
  end(): void {
    if (this.#isTerminal) process.stderr.write("\r\u001B[K");
  }
}
