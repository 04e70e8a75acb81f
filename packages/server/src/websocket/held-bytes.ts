/** What one client has made the server keep for it, over all of its channels. */
export class HeldBytes {
  readonly #mostBytes: number;
  #bytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  /** The result gives them back, once; nothing where they would be too many. */
  take(bytes: number): (() => void) | undefined {
    if (this.#bytes + bytes > this.#mostBytes) return undefined;
    this.#bytes += bytes;
    let isHeld = true;
    return () => {
      if (isHeld) this.#bytes -= bytes;
      isHeld = false;
    };
  }
}
