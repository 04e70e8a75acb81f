/**
 * Asks for the next piece when the reader wants it, so that memory holds one piece, however slow the reader is. A source that can be
 * closed is closed when the reader leaves.
 */
export function byteStream(source: AsyncIterable<Uint8Array> & { destroy?(): unknown }): ReadableStream<Uint8Array> {
  const pieces = source[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>(
    {
      pull: async (controller) => {
        const { done, value } = await pieces.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      cancel: async () => {
        source.destroy?.();
        await pieces.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}
