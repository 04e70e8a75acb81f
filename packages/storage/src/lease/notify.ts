import { pause, type Clock } from "./clock.ts";

/** Ends a pause early. A notification that comes while there is no pause is kept, and ends the next pause at once. */
export class Notify {
  #isPending = false;
  #wake = new AbortController();

  give(): void {
    this.#isPending = true;
    this.#wake.abort();
  }

  /** Ends with a notification, with the signal, or when the time has passed. */
  async pause(clock: Clock, delayMs: number, signal: AbortSignal | undefined): Promise<void> {
    if (!this.#isPending) {
      this.#wake = new AbortController();
      await pause(clock, delayMs, signal, this.#wake.signal);
    }
    this.#isPending = false;
  }
}
