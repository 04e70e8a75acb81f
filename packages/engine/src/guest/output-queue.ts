import type { OutputEvent } from "@atoll/host";
import { protocolConstants } from "./frames.ts";
import { OutputRing } from "./output-ring.ts";

/**
 * A waiting reader acknowledges after this many bytes. This is less than the smallest window, so that a stream whose
 * window is not known, because an earlier server chose it, cannot stall.
 */
const idleAckBytes = 1024;

/** The maximum size of one piece for the reader. */
const mostPieceBytes = protocolConstants.MAX_DATA;

/**
 * The output of one stream between the channel and its one reader. Keeps no more than the guest's window, because the
 * guest sends no more before an acknowledgement.
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
   * `acknowledge` is called with the offset below which everything was taken: once per quarter of the window, and when
   * the reader waits.
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

  /** The memory of the queue, whether or not it has output in it. */
  get bufferedBytes(): number {
    return this.#ring.bufferedBytes;
  }

  /** Says whether the guest has sent more than it may before an acknowledgement. */
  exceedsWindow(bytes: number): boolean {
    return this.#receivedAt + bytes - this.#ackedAt > this.#windowBytes;
  }

  /** Acknowledges everything that was taken to a guest that knows of it only up to `heardAt`. */
  acknowledgeTaken(heardAt: number): void {
    if (this.#takenAt <= heardAt) return;
    this.#ackedAt = this.#takenAt;
    this.#acknowledge(this.#ackedAt);
  }

  /** Copies the bytes. */
  push(event: OutputEvent): void {
    this.#receivedAt = event.at + event.data.byteLength;
    if (this.#state === "open") {
      this.#ring.push(event);
      this.#notify();
    } else if (this.#ring.isEmpty) {
      this.#drop();
    }
  }

  /** Called when the process has ended: later output comes from something that it left behind, and is dropped. */
  finish(): void {
    if (this.#state === "open") this.#state = "finished";
    this.#notify();
  }

  /** The reader gets what has arrived, then `error`, unless the end is known already. */
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

  /** Each piece belongs to the reader, and counts as taken when the next one is requested. */
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
   * Calls `take` with every piece, in memory that is reused: a piece is valid, and not taken, until `take` has settled.
   * Resolves at the end. If `take` fails, so does this; neither that piece nor a later one is taken then.
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

  /** Returns the oldest piece, as soon as there is one; `undefined` at the end. */
  async #first(): Promise<OutputEvent | undefined> {
    for (;;) {
      const piece = this.#ring.first(mostPieceBytes);
      if (piece !== undefined) return piece;
      // The caller may keep the process after its end, but not this memory.
      if (this.#state !== "open") this.#ring.clear();
      if (this.#state === "failed") throw this.#error;
      if (this.#state !== "open") return undefined;
      this.#acknowledgeFrom(idleAckBytes);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Called when the reader is done with a piece. */
  #settle(piece: OutputEvent): void {
    const isLast = this.#state !== "open" && this.#ring.isEmpty;
    this.#take(isLast ? this.#receivedAt : piece.at + piece.data.byteLength);
  }

  /** Drops what has arrived, because there is no reader. */
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

/** Copies into memory of its own, not into a part of the pool that others share. */
function copyOf(data: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(data.byteLength);
  copy.set(data);
  return copy;
}
