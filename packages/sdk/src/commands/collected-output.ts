import type { OutputEvent } from "./output-event.ts";

/**
 * Collects output for a result: both streams, each up to a limit, a quarter of it from the beginning and the rest from
 * the end.
 */
export class CollectedOutput {
  readonly #streams: { stdout: BoundedBytes; stderr: BoundedBytes };
  #droppedBytes = 0;

  constructor(limitBytes: number) {
    this.#streams = { stdout: new BoundedBytes(limitBytes), stderr: new BoundedBytes(limitBytes) };
  }

  add(event: OutputEvent): void {
    if (event.type === "dropped") this.#droppedBytes += event.bytes;
    else if (event.type !== "ended") this.#streams[event.type].add(event.data);
  }

  get stdout(): string {
    return this.#streams.stdout.text();
  }

  get stderr(): string {
    return this.#streams.stderr.text();
  }

  /** The bytes that are missing from the middle, because the server or this collection left them out. */
  get droppedBytes(): number {
    return this.#droppedBytes + this.#streams.stdout.droppedBytes + this.#streams.stderr.droppedBytes;
  }
}

class BoundedBytes {
  readonly #headBytes: number;
  readonly #tailBytes: number;
  readonly #head: Uint8Array[] = [];
  readonly #tail: Uint8Array[] = [];
  #headLength = 0;
  #tailLength = 0;
  droppedBytes = 0;

  constructor(limitBytes: number) {
    this.#headBytes = Math.floor(limitBytes / 4);
    this.#tailBytes = limitBytes - this.#headBytes;
  }

  add(bytes: Uint8Array): void {
    const toHead = bytes.subarray(0, this.#headBytes - this.#headLength);
    if (toHead.length > 0) this.#head.push(toHead);
    this.#headLength += toHead.length;
    const rest = bytes.subarray(toHead.length);
    if (rest.length === 0) return;
    this.#tail.push(rest);
    this.#tailLength += rest.length;
    while (this.#tailLength > this.#tailBytes) {
      const [first] = this.#tail;
      if (first === undefined) break;
      const excess = this.#tailLength - this.#tailBytes;
      if (first.length > excess) this.#tail[0] = first.subarray(excess);
      else this.#tail.shift();
      const removed = Math.min(first.length, excess);
      this.#tailLength -= removed;
      this.droppedBytes += removed;
    }
  }

  text(): string {
    const whole = new Uint8Array(this.#headLength + this.#tailLength);
    let at = 0;
    for (const piece of [...this.#head, ...this.#tail]) {
      whole.set(piece, at);
      at += piece.length;
    }
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(whole);
  }
}
