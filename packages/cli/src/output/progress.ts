import { formatDuration } from "./amount.ts";

const quietMs = 1_000;
const redrawMs = 200;
const eraseLine = "\r\u001B[2K";

/** A line on a terminal that shows what the call waits for and for how long. It is erased at the end. */
export class Progress {
  readonly #stream: NodeJS.WriteStream;
  readonly #what: string;
  readonly #startedAtMs = Date.now();
  #detail = "";
  #isDrawn = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(stream: NodeJS.WriteStream, what: string, isShown: boolean) {
    this.#stream = stream;
    this.#what = what;
    if (!isShown) return;
    this.#timer = setTimeout(() => {
      this.#draw();
      this.#timer = setInterval(() => this.#draw(), redrawMs).unref();
    }, quietMs).unref();
  }

  /** The progress, such as "12 MiB of 40 MiB". */
  set detail(text: string) {
    this.#detail = text;
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#isDrawn) this.#stream.write(eraseLine);
    this.#isDrawn = false;
  }

  #draw(): void {
    const elapsed = formatDuration(Math.floor((Date.now() - this.#startedAtMs) / 1_000) * 1_000);
    const text = [this.#what, this.#detail, elapsed].filter((part) => part !== "").join(" · ");
    this.#stream.write(eraseLine + text.slice(0, Math.max(0, (this.#stream.columns ?? 80) - 1)));
    this.#isDrawn = true;
  }
}
