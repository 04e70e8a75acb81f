import type { Readable } from "node:stream";

/**
 * The body of a request that fails with the reason of `revoked` as soon as that aborts, also while its client sends
 * nothing: what is not whole by then is not committed. What still comes is read away, so that the client can be
 * answered.
 */
export function revocableBody(body: Readable, revoked: AbortSignal | undefined): AsyncIterable<Buffer> {
  if (revoked === undefined || body.closed) return body;
  let fail: ((reason: unknown) => void) | undefined;
  const abort = (): void => fail?.(revoked.reason);
  revoked.addEventListener("abort", abort, { once: true });
  body.once("close", () => revoked.removeEventListener("abort", abort));
  return {
    [Symbol.asyncIterator]: () => {
      const pieces = body[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
      return {
        next: () =>
          new Promise((resolve, reject) => {
            fail = (reason) => {
              reject(reason);
              readAway(pieces).catch(() => undefined);
            };
            if (revoked.aborted) fail(revoked.reason);
            else pieces.next().then(resolve, reject);
          }),
        return: async () => (await pieces.return?.()) ?? { done: true, value: undefined },
      };
    },
  };
}

async function readAway(pieces: AsyncIterator<unknown>): Promise<void> {
  while ((await pieces.next()).done !== true);
}
