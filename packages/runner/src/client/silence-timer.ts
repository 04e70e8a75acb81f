/** Ends a command that prints nothing for too long. Without a limit it does nothing. */
export class SilenceTimer implements AsyncDisposable {
  readonly #timer: NodeJS.Timeout | undefined;
  #work: Promise<void> | undefined;

  constructor(limitMs: number | undefined, end: () => Promise<void>) {
    if (limitMs === undefined) return;
    this.#timer = setTimeout(() => {
      this.#work = end();
    }, limitMs);
  }

  /** Whether the limit was reached. */
  get isOver(): boolean {
    return this.#work !== undefined;
  }

  restart(): void {
    if (!this.isOver) this.#timer?.refresh();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearTimeout(this.#timer);
    await this.#work;
  }
}
