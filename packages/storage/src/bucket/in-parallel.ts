import { firstToAbort } from "@atoll/protocol";
import type { Gate } from "./gate.ts";

export interface ParallelOptions<T> {
  gate: Gate;
  signal: AbortSignal;
  /** Prepares one item. The calls follow one another, each when there is room for its item. */
  prepare: (index: number) => Promise<T>;
  /** Works on a prepared item, several at a time. */
  work: (item: T, signal: AbortSignal) => Promise<void>;
}

/** Does `count` pieces of work. The first failure stops the others, and no work is left running when this settles. */
export async function inParallel<T>(count: number, options: ParallelOptions<T>): Promise<void> {
  const failure = new AbortController();
  using stop = firstToAbort(options.signal, failure.signal);
  const running: Promise<void>[] = [];
  const fail = (error: unknown) => failure.abort(error);
  try {
    for (let index = 0; index < count; index++) {
      const leave = await options.gate.enter(stop);
      try {
        const item = await options.prepare(index);
        running.push(options.work(item, stop).catch(fail).finally(leave));
      } catch (error) {
        leave();
        throw error;
      }
    }
  } catch (error) {
    fail(error);
  }
  await Promise.all(running);
  stop.throwIfAborted();
}
