import type { Readable } from "node:stream";

/**
 * Returns the body of a request that fails with the reason of `revoked` as soon as that aborts, also while the client
 * sends nothing: a body that is incomplete by then is not committed. The rest is read and discarded, so that the client
 * can get the reply.
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
              discardRest(pieces).catch(() => undefined);
            };
            if (revoked.aborted) fail(revoked.reason);
            else pieces.next().then(resolve, reject);
          }),
        return: async () => (await pieces.return?.()) ?? { done: true, value: undefined },
      };
    },
  };
}

async function discardRest(pieces: AsyncIterator<unknown>): Promise<void> {
  while ((await pieces.next()).done !== true);
}
