/** Text on a terminal that the next text replaces. The cursor is hidden until this is disposed, or the process ends. */
export class LiveScreen implements Disposable {
  readonly #stream: NodeJS.WriteStream;
  readonly #restore = (): void => this[Symbol.dispose]();
  #lines = 0;
  #isOpen = true;

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream;
    process.once("exit", this.#restore);
    stream.write("\u001B[?25l");
  }

  /** Cuts the text to the height of the terminal, because lines that have scrolled away cannot be replaced. */
  draw(text: string): void {
    const lines = text
      .split("\n")
      .slice(0, -1)
      .slice(0, Math.max(1, this.#stream.rows - 1));
    const back = this.#lines === 0 ? "" : `\u001B[${this.#lines}A`;
    this.#stream.write(`${back}\r\u001B[0J${lines.map((line) => `${line}\n`).join("")}`);
    this.#lines = lines.length;
  }

  [Symbol.dispose](): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    process.removeListener("exit", this.#restore);
    this.#stream.write("\u001B[?25h");
  }
}
