import type { OutputEvent } from "@atoll/host";
import { protocolConstants } from "./frames.ts";
import { OutputRing } from "./output-ring.ts";

/**
 * A reader that waits acknowledges from here on. Less than the smallest window, so that a stream whose window is not
 * known, because a predecessor chose it, cannot come to a stand.
 */
const idleAckBytes = 1024;

/** Of one piece for the reader. */
const mostPieceBytes = protocolConstants.MAX_DATA;

/**
 * The output of one stream between the channel and its one reader. Pins no more than the guest's window, because the
 * guest sends no more before it is acknowledged.
 */
export class OutputQueue implements AsyncIterable<OutputEvent> {
  #ring = new OutputRing();
  #receivedAt: number;
  #takenAt: number;
  #ackedAt: number;
  #windowBytes: number;
  #acknowledge: (at: number) => void;
  #wake: (() => void) | undefined;
  #state: "open" | "finished" | "failed" | "discarding" = "open";
  #error: unknown;
  #hasReader = false;

  /**
   * `acknowledge` is called with the offset below which everything was taken, now and then: once per quarter of the
   * window and when the reader waits.
   */
  constructor(startAt: number, windowBytes: number, acknowledge: (at: number) => void) {
    this.#receivedAt = startAt;
    this.#takenAt = startAt;
    this.#ackedAt = startAt;
    this.#windowBytes = windowBytes;
    this.#acknowledge = acknowledge;
  }

  get receivedAt(): number {
    return this.#receivedAt;
  }

  /** Memory that it keeps, for what waits or is to come. */
  get heldBytes(): number {
    return this.#ring.heldBytes;
  }

  /** Whether the guest has sent more than it may before an acknowledgement. */
  exceedsWindow(bytes: number): boolean {
    return this.#receivedAt + bytes - this.#ackedAt > this.#windowBytes;
  }

  /** Says how far everything was taken to a guest that knows it only up to `heardAt`. */
  acknowledgeTaken(heardAt: number): void {
    if (this.#takenAt <= heardAt) return;
    this.#ackedAt = this.#takenAt;
    this.#acknowledge(this.#ackedAt);
  }

  /** The bytes are copied. */
  push(event: OutputEvent): void {
    this.#receivedAt = event.at + event.data.byteLength;
    if (this.#state === "open") {
      this.#ring.push(event);
      this.#notify();
    } else if (this.#ring.isEmpty) {
      this.#drop();
    }
  }

  /** The process is over: what is pushed from now on comes from something it left behind, and is dropped. */
  finish(): void {
    if (this.#state === "open") this.#state = "finished";
    this.#notify();
  }

  /** The reader gets what has arrived, then `error`; unless the end is known already. */
  fail(error: unknown): void {
    if (this.#state !== "open") return;
    this.#state = "failed";
    this.#error = error;
    this.#notify();
  }

  discard(): void {
    if (this.#state !== "failed") this.#state = "discarding";
    this.#ring.clear();
    this.#drop();
    this.#notify();
  }

  /** Each piece belongs to the reader, and counts as taken when the next one is asked for. */
  [Symbol.asyncIterator](): AsyncIterator<OutputEvent, undefined> {
    this.#admitReader();
    let last: OutputEvent | undefined;
    const settle = (): void => {
      if (last !== undefined) this.#settle(last);
      last = undefined;
    };
    return {
      next: async () => {
        settle();
        const first = await this.#first();
        if (first === undefined) return { done: true, value: undefined };
        last = { ...first, data: copyOf(first.data) };
        this.#ring.drop(last.data.byteLength);
        return { done: false, value: last };
      },
      return: async () => {
        settle();
        this.discard();
        return { done: true, value: undefined };
      },
    };
  }

  /**
   * Hands every piece to `take`, in memory that is used again: a piece is good, and not taken, until `take` has
   * settled. Resolves at the end. If `take` fails, so does this; neither that piece nor anything behind it is taken
   * then.
   */
  async consume(take: (event: OutputEvent) => void | Promise<void>): Promise<void> {
    this.#admitReader();
    for (let piece = await this.#first(); piece !== undefined; piece = await this.#first()) {
      await take(piece);
      this.#ring.drop(piece.data.byteLength);
      this.#settle(piece);
    }
  }

  #admitReader(): void {
    if (this.#hasReader) throw new Error("The output of a process has one reader");
    this.#hasReader = true;
  }

  /** The oldest piece, as soon as there is one; `undefined` at the end. */
  async #first(): Promise<OutputEvent | undefined> {
    for (;;) {
      const piece = this.#ring.first(mostPieceBytes);
      if (piece !== undefined) return piece;
      // Whoever keeps the process when it is over need not keep this.
      if (this.#state !== "open") this.#ring.clear();
      if (this.#state === "failed") throw this.#error;
      if (this.#state !== "open") return undefined;
      this.#acknowledgeFrom(idleAckBytes);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** The reader is through with it. */
  #settle(piece: OutputEvent): void {
    const isLast = this.#state !== "open" && this.#ring.isEmpty;
    this.#take(isLast ? this.#receivedAt : piece.at + piece.data.byteLength);
  }

  /** Nobody will read what has arrived. */
  #drop(): void {
    this.#takenAt = this.#receivedAt;
    this.#acknowledgeFrom(idleAckBytes);
  }

  #take(at: number): void {
    this.#takenAt = at;
    this.#acknowledgeFrom(this.#windowBytes / 4);
  }

  #acknowledgeFrom(bytes: number): void {
    if (this.#takenAt - this.#ackedAt < bytes) return;
    this.#ackedAt = this.#takenAt;
    this.#acknowledge(this.#ackedAt);
  }

  #notify(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}

/** In memory of its own, not in a part of the pool that others share. */
function copyOf(data: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(data.byteLength);
  copy.set(data);
  return copy;
}
