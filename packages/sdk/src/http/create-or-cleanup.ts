import { untilAborted } from "./until-aborted.ts";

/**
 * For what goes on living on the server and is known by the answer only. A caller that aborts, or whose time is over,
 * leaves at once; what is made all the same is undone, for nobody would ever know of it.
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
    // There is nobody left to tell what comes of it; the sandbox's own limits end what is left.
    making.then(undo).catch(() => undefined);
    throw error;
  }
}
