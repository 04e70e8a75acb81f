/** Where nobody overwrites a line, one line per this long is enough to see that it goes on. */
const quietMs = 5_000;

/** Says on stderr what is going on; stdout has the result only. */
export class Progress {
  #topic = "";
  #toldAtMs = 0;
  #isTerminal = process.stderr.isTTY;

  start(topic: string): void {
    this.#topic = topic;
    this.#toldAtMs = 0;
    this.report("setting up");
  }

  report(text: string): void {
    if (this.#isTerminal) {
      process.stderr.write(`\r\u001B[K${this.#topic}: ${text}`);
      return;
    }
    const nowMs = performance.now();
    if (this.#toldAtMs !== 0 && nowMs - this.#toldAtMs < quietMs) return;
    this.#toldAtMs = nowMs;
    process.stderr.write(`${this.#topic}: ${text}\n`);
  }

  /** Gives the line free. */
  end(): void {
    if (this.#isTerminal) process.stderr.write("\r\u001B[K");
  }
}
