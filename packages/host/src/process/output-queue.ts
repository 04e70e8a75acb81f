import type { Readable } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { OutputEvent } from "./process.ts";

/**
 * A pipe or a socket of the default size holds less than this. A reader that has read this much after the exit has read
 * all that was written before it.
 */
const mostLeftBehindBytes = 1024 * 1024;

/**
 * The number of turns of the event loop without output after which the pipes count as empty. Each turn reads every
 * readable descriptor, and the first may only start the reading.
 */
const quietTurns = 2;

/**
 * Joins stdout and stderr to one sequence of events for one reader. While `windowBytes` wait for that reader, nothing
 * more is read from the pipes and the writer blocks.
 */
export class OutputQueue implements AsyncIterableIterator<OutputEvent> {
  readonly #sources: Readable[] = [];
  readonly #windowBytes: number;
  #events: OutputEvent[] = [];
  #waitingBytes = 0;
  #at = 0;
  #isDiscarding = false;
  #hasReader = false;
  #hasEnded = false;
  /** Set while the reader waits for an event or for the end. */
  #wakeReader: (() => void) | undefined;
  /** Set while `drain` waits for the reader to make room. */
  #wakeDrain: (() => void) | undefined;

  constructor(windowBytes: number) {
    this.#windowBytes = windowBytes;
  }

  addSource(stream: OutputEvent["stream"], source: Readable): void {
    let offset = 0;
    this.#sources.push(source);
    source.on("data", (data: Buffer) => {
      this.#push({ stream, data, offset, at: this.#at });
      offset += data.length;
    });
    // A broken pipe ends the output; the exit says how the process ended.
    source.on("error", () => source.destroy());
  }

  /**
   * Reads what is left after the process has ended, then closes the pipes. A child of the process may keep them open
   * for ever and even write to them: its output is not waited for.
   */
  async drain(): Promise<void> {
    const endAt = this.#at + mostLeftBehindBytes;
    for (let quiet = 0; quiet < quietTurns && this.#at < endAt && this.#isOpen();) {
      await this.#room();
      const before = this.#at;
      await nextTurn();
      quiet = this.#at === before && !this.#isFull() ? quiet + 1 : 0;
    }
    for (const source of this.#sources) source.destroy();
    this.#hasEnded = true;
    this.#wakeReader?.();
  }

  discard(): void {
    this.#isDiscarding = true;
    this.#hasReader = true;
    this.#events = [];
    this.#makeRoom(this.#waitingBytes);
  }

  [Symbol.asyncIterator](): this {
    if (this.#hasReader) throw new Error("The output of a process has one reader, and another reader has it already");
    this.#hasReader = true;
    return this;
  }

  async next(): Promise<IteratorResult<OutputEvent, undefined>> {
    while (this.#events.length === 0 && !this.#hasEnded && !this.#isDiscarding) {
      await new Promise<void>((resolve) => (this.#wakeReader = resolve));
      this.#wakeReader = undefined;
    }
    const event = this.#events.shift();
    if (event === undefined) return { done: true, value: undefined };
    this.#makeRoom(event.data.length);
    return { done: false, value: event };
  }

  return(): Promise<IteratorResult<OutputEvent, undefined>> {
    this.discard();
    return Promise.resolve({ done: true, value: undefined });
  }

  #push(event: OutputEvent): void {
    this.#at += event.data.length;
    if (this.#isDiscarding) return;
    this.#events.push(event);
    this.#waitingBytes += event.data.length;
    if (this.#isFull()) for (const source of this.#sources) source.pause();
    this.#wakeReader?.();
  }

  #makeRoom(bytes: number): void {
    this.#waitingBytes -= bytes;
    if (this.#isFull()) return;
    for (const source of this.#sources) source.resume();
    this.#wakeDrain?.();
    if (this.#isDiscarding) this.#wakeReader?.();
  }

  async #room(): Promise<void> {
    while (this.#isFull()) {
      await new Promise<void>((resolve) => (this.#wakeDrain = resolve));
      this.#wakeDrain = undefined;
    }
  }

  #isFull(): boolean {
    return this.#waitingBytes >= this.#windowBytes;
  }

  #isOpen(): boolean {
    return this.#sources.some((source) => !source.readableEnded && !source.destroyed);
  }
}
