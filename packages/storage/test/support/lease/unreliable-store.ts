import { SandboxError } from "@atoll/protocol";
import type { ObjectStore } from "../../../src/index.ts";
import type { Timeline } from "./timeline.ts";

/** What happens to one call on its way to the store and back. */
export interface Fate {
  /** The time until the call reaches the store. */
  requestMs: number;
  /** The time from there until its answer arrives. */
  answerMs: number;
  /**
   * `request_lost`: the call never reaches the store. `answer_lost`: it does, and there is no answer. `reset`: it does,
   * and the caller gets an error. `refused`: it does not, and the caller gets an error.
   */
  kind: "fine" | "request_lost" | "answer_lost" | "reset" | "refused";
  /** A second copy of the request reaches the store after this time. */
  againMs?: number | undefined;
}

export const quickFate: Fate = { requestMs: 1, answerMs: 1, kind: "fine" };

export interface Way {
  timeline: Timeline;
  nextFate: () => Fate;
  /** Delivers an answer to the caller, which may be stopped or dead. */
  deliver: (action: () => void) => void;
}

/** The same store over a connection on which calls are delayed, lost, doubled and overtaken by later ones. */
export function unreliableStore(store: ObjectStore, { timeline, nextFate, deliver }: Way): ObjectStore {
  const unavailable = (): SandboxError =>
    new SandboxError("unavailable", "Cannot reach the store: the connection is bad");

  const call = <T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> => {
    const { requestMs, answerMs, kind, againMs } = nextFate();
    const left = new AbortController();
    return new Promise<T>((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      signal?.addEventListener("abort", () => reject(signal.reason), { once: true, signal: left.signal });
      const answer = (action: () => void): void => {
        timeline.at(timeline.nowMs + answerMs, () => deliver(action));
      };
      const arrive = (): void => {
        const done = work();
        if (kind === "fine")
          done.then(
            (value) => answer(() => resolve(value)),
            (error) => answer(() => reject(error)),
          );
        else done.catch(() => undefined);
        if (kind === "reset") answer(() => reject(unavailable()));
      };
      if (kind === "refused") answer(() => reject(unavailable()));
      if (kind === "refused" || kind === "request_lost") return;
      timeline.at(timeline.nowMs + requestMs, arrive);
      if (againMs !== undefined) timeline.at(timeline.nowMs + againMs, () => void work().catch(() => undefined));
    }).finally(() => left.abort());
  };

  // The signal belongs to the caller, and has no effect on a request that is in flight.
  return {
    place: store.place,
    get: (key, options) => call(options?.signal, () => store.get(key)),
    put: (key, data, options = {}) =>
      call(options.signal, () => store.put(key, data, options.if === undefined ? {} : { if: options.if })),
    stat: (key, options) => call(options?.signal, () => store.stat(key)),
    remove: (key, options = {}) =>
      call(options.signal, () => store.remove(key, options.if === undefined ? {} : { if: options.if })),
    list: (prefix, options) => store.list(prefix, options),
    upload: (key, path, options) => store.upload(key, path, options),
    download: (key, path, options) => store.download(key, path, options),
    read: (key, range, options) => store.read(key, range, options),
    probe: (options) => store.probe(options),
    sweep: (options) => store.sweep(options),
    close: () => store.close(),
  };
}
