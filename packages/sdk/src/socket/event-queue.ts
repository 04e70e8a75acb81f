/** Passes events from a channel that pushes to one reader that pulls. */
export class EventQueue<Event> {
  readonly #events: Event[] = [];
  #wake: (() => void) | undefined;
  #end: { error?: Error } | undefined;

  push(event: Event): void {
    if (this.#end !== undefined) return;
    this.#events.push(event);
    this.#wake?.();
  }

  /** Ends the queue: after the events that are there, the reader gets the error or the end. */
  end(error?: Error): void {
    this.#end ??= error === undefined ? {} : { error };
    this.#wake?.();
  }

  /** Resolves with `undefined` at the end. Rejects with the error of the end, or with the signal's reason. */
  async next(signal?: AbortSignal): Promise<Event | undefined> {
    signal?.throwIfAborted();
    const onAbort = () => this.#wake?.();
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      while (this.#events.length === 0 && this.#end === undefined) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        this.#wake = undefined;
        signal?.throwIfAborted();
      }
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
    const event = this.#events.shift();
    if (event === undefined && this.#end?.error !== undefined) throw this.#end.error;
    return event;
  }
}
