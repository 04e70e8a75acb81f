import type { Writable } from "node:stream";

/**
 * Lets what is written to a stream within one turn of the event loop leave together. Output of many commands comes at
 * the same moment, and each piece that leaves on its own costs a system call and wakes its reader.
 */
export class GatheredWrites {
  readonly #stream: Writable;
  #isGathering = false;

  constructor(stream: Writable) {
    this.#stream = stream;
  }

  /** Before a write that need not leave at once; the turn's end sends it. */
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
