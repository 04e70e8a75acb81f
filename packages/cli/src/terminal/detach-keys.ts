const enter = 0x0d;
const newline = 0x0a;
const tilde = 0x7e;
const dot = 0x2e;

/**
 * Finds Enter, then `~.`, in what is typed, as ssh does: it leaves a command without ending it. `~~` at the start of a
 * line is one tilde.
 */
export class DetachKeys {
  #isLineStart = true;
  #hasTilde = false;

  /** Returns what to send to the command, and whether the input had the keys; what follows them is not sent. */
  filter(input: Uint8Array): { data: Uint8Array; isDetached: boolean } {
    const data: number[] = [];
    for (const byte of input) {
      if (this.#hasTilde) {
        this.#hasTilde = false;
        if (byte === dot) return { data: Uint8Array.from(data), isDetached: true };
        data.push(tilde);
        if (byte === tilde) {
          this.#isLineStart = false;
          continue;
        }
      } else if (this.#isLineStart && byte === tilde) {
        this.#hasTilde = true;
        continue;
      }
      data.push(byte);
      this.#isLineStart = byte === enter || byte === newline;
    }
    return { data: Uint8Array.from(data), isDetached: false };
  }
}
