import type { Writable } from "node:stream";

/**
 * Combines what is written to a stream within one turn of the event loop. Output of many commands comes at the same
 * moment, and each piece that is sent on its own costs a system call and wakes its reader.
 */
export class GatheredWrites {
  readonly #stream: Writable;
  #isGathering = false;

  constructor(stream: Writable) {
    this.#stream = stream;
  }

  /** Delays the following writes to the end of the turn. It is called before a write that need not be sent at once. */
  gather(): void {
    if (this.#isGathering) return;
    this.#isGathering = true;
    this.#stream.cork();
    setImmediate(() => {
      this.#isGathering = false;
      this.#stream.uncork();
    });
  }
}
