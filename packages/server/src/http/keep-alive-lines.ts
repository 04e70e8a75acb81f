export interface LineTiming<T> {
  heartbeatMs: number;
  heartbeat: () => T;
  /** The last thing said when `stopping` aborts. */
  shutdown: () => T;
  stopping: AbortSignal;
  /** The last thing said when `revoked` aborts, with its reason. */
  refused: (reason: unknown) => T;
  revoked?: AbortSignal | undefined;
  /** The reader is gone. */
  signal: AbortSignal;
}

type Happening<T> = { what: "next"; result: IteratorResult<T> } | { what: "quiet" | "left" | "stopping" | "revoked" };

/** What the source tells, with signs of life in between: a silent connection looks dead to every proxy on the way. */
export async function* keepAlive<T>(source: AsyncIterable<T>, timing: LineTiming<T>): AsyncGenerator<T, void, void> {
  const iterator = source[Symbol.asyncIterator]();
  // One promise at a time, and listeners that stay: racing against promises that live as long as the stream would
  // keep a reaction per line.
  let report: (happening: Happening<T>) => void = () => undefined;
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
      const happening = await new Promise<Happening<T>>((resolve, reject) => {
        const timer = setTimeout(() => report({ what: "quiet" }), timing.heartbeatMs);
        report = (happening) => {
          clearTimeout(timer);
          resolve(happening);
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
      switch (happening.what) {
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
          if (happening.result.done === true) return;
          yield happening.result.value;
          break;
      }
    }
  } finally {
    timing.signal.removeEventListener("abort", left);
    timing.stopping.removeEventListener("abort", stopped);
    timing.revoked?.removeEventListener("abort", refused);
    // The source may wait for what never comes: nobody waits for it here.
    iterator.return?.().catch(() => undefined);
  }
}

/**
 * Waits for the first piece before anything is promised: what cannot be read at all is then an error with a status, and
 * not a stream that breaks off.
 */
export async function begun<T>(source: AsyncIterable<T>): Promise<AsyncIterable<T>> {
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
