import { untilAborted } from "./until-aborted.ts";

/**
 * Creates something that lives on the server and is known by the answer only. A caller that aborts, or whose time is
 * over, leaves at once; if the server has created it all the same, it is removed, because no client would know of it.
 */
export async function createOrCleanup<Value>(
  make: () => Promise<Value>,
  undo: (made: Value) => Promise<unknown>,
  signal: AbortSignal | undefined,
): Promise<Value> {
  signal?.throwIfAborted();
  const making = make();
  try {
    return await untilAborted(making, signal);
  } catch (error) {
    // The caller has left, so the error has no receiver; the sandbox's own limits end what is left.
    making.then(undo).catch(() => undefined);
    throw error;
  }
}
