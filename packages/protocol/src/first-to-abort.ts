/** One listener for all that wait for a signal: something that lasts may be waited for by hundreds at a time. */
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Aborts with the reason of the first of these that does. Lets go of all of them then, and at the latest when it is
 * disposed of, so that something that lasts can be combined with what is over in a moment as often as one likes. In
 * place of `AbortSignal.any`, which on Node 20 leaves something behind on each of its signals for as long as that one
 * lives.
 *
 *     using stop = firstToAbort(signal, deadlineAfter(ms));
 */
export function firstToAbort(...signals: readonly (AbortSignal | undefined)[]): AbortSignal & Disposable {
  const controller = new AbortController();
  const undo: (() => void)[] = [];
  const letGo = (): void => {
    for (const each of undo.splice(0)) each();
  };
  for (const signal of signals) {
    if (signal === undefined) continue;
    const abort = (): void => {
      letGo();
      controller.abort(signal.reason);
    };
    if (signal.aborted) {
      abort();
      break;
    }
    undo.push(whenAborted(signal, abort));
  }
  return Object.assign(controller.signal, { [Symbol.dispose]: letGo });
}

/** What is returned takes it back. */
function whenAborted(signal: AbortSignal, abort: () => void): () => void {
  const all = waiting.get(signal) ?? new Set();
  if (!waiting.has(signal)) {
    waiting.set(signal, all);
    const abortAll = (): void => {
      for (const each of all) each();
    };
    signal.addEventListener("abort", abortAll, { once: true });
  }
  all.add(abort);
  return () => all.delete(abort);
}
