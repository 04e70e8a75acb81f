import type { Cli } from "../cli.ts";
import { stdinPieces } from "../input/stdin-pieces.ts";

type Source = AsyncIterable<Uint8Array> & { destroy?(): unknown };

/**
 * Asks for the next piece only when the reader wants it, so that memory holds one piece, however slow the reader is. A
 * source that can be closed is closed when the reader leaves.
 */
export function byteStream(source: Source, onBytes?: (bytes: number) => void): ReadableStream<Uint8Array> {
  const pieces = source[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        const { done, value } = await pieces.next();
        if (done === true) return controller.close();
        onBytes?.(value.length);
        controller.enqueue(value);
      },
      cancel: async () => {
        source.destroy?.();
        await pieces.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}

/** Streams stdin until the reader leaves, without waiting for one more key. */
export function stdinStream(cli: Cli, onBytes?: (bytes: number) => void): ReadableStream<Uint8Array> {
  const left = new AbortController();
  async function* pieces(): AsyncGenerator<Uint8Array, void, undefined> {
    yield* stdinPieces(cli.stdin, AbortSignal.any([cli.signal, left.signal]));
    // Input that was cut off must not look complete.
    cli.signal.throwIfAborted();
  }
  return byteStream(Object.assign(pieces(), { destroy: () => left.abort() }), onBytes);
}
