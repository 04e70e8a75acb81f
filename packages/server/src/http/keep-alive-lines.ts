export interface LineTiming<T> {
  heartbeatMs: number;
  heartbeat: () => T;
  /** Returns the last line after `stopping` aborts. */
  shutdown: () => T;
  stopping: AbortSignal;
  /** Returns the last line after `revoked` aborts; `reason` is its reason. */
  refused: (reason: unknown) => T;
  revoked?: AbortSignal | undefined;
  /** Aborts when the reader is gone. */
  signal: AbortSignal;
}

type StreamChange<T> =
  | { what: "next"; result: IteratorResult<T> }
  | { what: "quiet" | "left" | "stopping" | "revoked" };

/** Yields the items of the source, with heartbeats in between: proxies take a silent connection for dead. */
export async function* keepAlive<T>(source: AsyncIterable<T>, timing: LineTiming<T>): AsyncGenerator<T, void, void> {
  const iterator = source[Symbol.asyncIterator]();
  // There is one promise at a time, and listeners stay: racing against promises that live as long as the stream would
  // add a reaction per line.
  let report: (change: StreamChange<T>) => void = () => undefined;
  let fail: (error: unknown) => void = () => undefined;
  const left = (): void => report({ what: "left" });
  const stopped = (): void => report({ what: "stopping" });
  timing.signal.addEventListener("abort", left);
  timing.stopping.addEventListener("abort", stopped);
  const refused = (): void => report({ what: "revoked" });
  timing.revoked?.addEventListener("abort", refused);
  let isAsked = false;
  try {
    for (;;) {
      const change = await new Promise<StreamChange<T>>((resolve, reject) => {
        const timer = setTimeout(() => report({ what: "quiet" }), timing.heartbeatMs);
        report = (change) => {
          clearTimeout(timer);
          resolve(change);
        };
        fail = (error) => {
          clearTimeout(timer);
          reject(error instanceof Error ? error : new Error(String(error)));
        };
        if (timing.signal.aborted) left();
        else if (timing.revoked?.aborted === true) refused();
        else if (timing.stopping.aborted) stopped();
        else if (!isAsked) {
          isAsked = true;
          iterator.next().then(
            (result) => report({ what: "next", result }),
            (error: unknown) => fail(error),
          );
        }
      });
      switch (change.what) {
        case "left":
          return;
        case "revoked":
          yield timing.refused(timing.revoked?.reason);
          return;
        case "stopping":
          yield timing.shutdown();
          return;
        case "quiet":
          yield timing.heartbeat();
          break;
        case "next":
          isAsked = false;
          if (change.result.done === true) return;
          yield change.result.value;
          break;
      }
    }
  } finally {
    timing.signal.removeEventListener("abort", left);
    timing.stopping.removeEventListener("abort", stopped);
    timing.revoked?.removeEventListener("abort", refused);
    // The source may never settle, so this does not wait for it.
    iterator.return?.().catch(() => undefined);
  }
}

/**
 * Waits for the first piece before the status is sent: a source that cannot be read at all is then an error with a
 * status, and not a stream that ends early.
 */
export async function awaitFirstPiece<T>(source: AsyncIterable<T>): Promise<AsyncIterable<T>> {
  const iterator = source[Symbol.asyncIterator]();
  let first: IteratorResult<T> | undefined = await iterator.next();
  const rest: AsyncIterator<T> = {
    next: () => {
      const result = first;
      first = undefined;
      return result === undefined ? iterator.next() : Promise.resolve(result);
    },
    return: async () => (await iterator.return?.()) ?? { done: true, value: undefined },
  };
  return { [Symbol.asyncIterator]: () => rest };
}
