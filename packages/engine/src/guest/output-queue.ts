import type { OutputEvent } from "../process/process.ts";

/**
 * A reader that waits acknowledges from here on. Less than the smallest window, so that a stream whose window is not known, because a
 * predecessor chose it, cannot come to a stand.
 */
const idleAckBytes = 1024;

/**
 * Pieces below this are copied together. A piece is a view of what was read from the channel at once, up to 64 KiB of all streams: one byte that
 * nobody reads must not keep all of that.
 */
const packBytes = 16 * 1024;

/**
 * The output of one stream between the channel and its one reader. Holds no more than the guest's window, because the guest
 * sends no more before it is acknowledged.
 */
export class OutputQueue implements AsyncIterable<OutputEvent> {
  #events: OutputEvent[] = [];
  /** The last event that was packed, and the memory that it grows into. */
  #pack: { event: OutputEvent; room: Buffer } | undefined;
  #receivedAt: number;
  #takenAt: number;
  #ackedAt: number;
  #windowBytes: number;
  #acknowledge: (at: number) => void;
  #wake: (() => void) | undefined;
  #state: "open" | "finished" | "failed" | "discarding" = "open";
  #error: unknown;
  #hasReader = false;

  /** `acknowledge` is called with the offset below which everything was taken, now and then: once per quarter of the window and when the reader waits. */
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

  push(event: OutputEvent): void {
    this.#receivedAt = event.at + event.data.byteLength;
    if (this.#state === "open") {
      if (event.data.byteLength < packBytes) this.#pushPacked(event);
      else this.#events.push(event);
      this.#notify();
    } else if (this.#events.length === 0) {
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
    this.#events = [];
    this.#drop();
    this.#notify();
  }

  [Symbol.asyncIterator](): AsyncIterator<OutputEvent, undefined> {
    if (this.#hasReader) throw new Error("The output of a process has one reader");
    this.#hasReader = true;
    let last: OutputEvent | undefined;
    const settle = (): void => {
      if (last === undefined) return;
      const isLast = this.#state !== "open" && this.#events.length === 0;
      this.#take(isLast ? this.#receivedAt : last.at + last.data.byteLength);
      last = undefined;
    };
    return {
      next: async () => {
        settle();
        for (;;) {
          last = this.#events.shift();
          if (last !== undefined) return { done: false, value: last };
          if (this.#state === "failed") throw this.#error;
          if (this.#state !== "open") return { done: true, value: undefined };
          this.#acknowledgeFrom(idleAckBytes);
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      },
      return: async () => {
        settle();
        this.discard();
        return { done: true, value: undefined };
      },
    };
  }

  #pushPacked(event: OutputEvent): void {
    const pack = this.#pack;
    const used = pack?.event.data.byteLength ?? 0;
    const size = used + event.data.byteLength;
    const isQueued = pack !== undefined && pack.event === this.#events.at(-1);
    if (isQueued && pack.event.stream === event.stream && size <= packBytes) {
      if (size > pack.room.byteLength) pack.room = copyOf(pack.event.data, Math.min(packBytes, 2 * size));
      pack.room.set(event.data, used);
      pack.event.data = pack.room.subarray(0, size);
    } else {
      const room = copyOf(event.data, event.data.byteLength);
      this.#pack = { event: { ...event, data: room }, room };
      this.#events.push(this.#pack.event);
    }
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
function copyOf(data: Buffer, capacity: number): Buffer {
  const copy = Buffer.allocUnsafeSlow(capacity);
  copy.set(data);
  return copy;
}
