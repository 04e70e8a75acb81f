import type { OutputEvent } from "../process/process.ts";

/**
 * A reader that waits acknowledges from here on. Less than the smallest window, so that a stream whose window is not known, because a
 * predecessor chose it, cannot come to a stand.
 */
const idleAckBytes = 1024;

/**
 * The output of one stream between the channel and its one reader. Holds no more than the guest's window, because the guest
 * sends no more before it is acknowledged.
 */
export class OutputQueue implements AsyncIterable<OutputEvent> {
  #events: OutputEvent[] = [];
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

  push(event: OutputEvent): void {
    this.#receivedAt = event.at + event.data.byteLength;
    if (this.#state === "open") {
      this.#events.push(event);
      this.#notify();
    } else if (this.#events.length === 0) {
      this.#take(this.#receivedAt);
    }
  }

  /** The process is over: what is pushed from now on comes from something it left behind, and is dropped. */
  finish(): void {
    if (this.#state === "open") this.#state = "finished";
    this.#notify();
  }

  /** The reader gets what has arrived, then `error`. */
  fail(error: unknown): void {
    if (this.#state === "discarding") return;
    this.#state = "failed";
    this.#error = error;
    this.#notify();
  }

  discard(): void {
    if (this.#state !== "failed") this.#state = "discarding";
    this.#events = [];
    this.#take(this.#receivedAt);
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
