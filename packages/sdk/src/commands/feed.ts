import type { ByteSource } from "../http/exchange.ts";
import type { CommandHandle } from "./command-handle.ts";

/** Sends everything of a source as input, as fast as the server accepts it, and then its end. */
export async function feed(
  handle: CommandHandle,
  source: ByteSource | AsyncIterable<Uint8Array | string>,
): Promise<void> {
  for await (const piece of piecesOf(source)) await handle.sendStdin(piece);
  await handle.closeStdin();
}

async function* piecesOf(source: ByteSource | AsyncIterable<Uint8Array | string>): AsyncGenerator<Uint8Array | string> {
  if (typeof source === "string" || source instanceof Uint8Array) yield source;
  else if (source instanceof ArrayBuffer) yield new Uint8Array(source);
  else if (source instanceof Blob) yield new Uint8Array(await source.arrayBuffer());
  else if (source instanceof ReadableStream) yield* readStream(source);
  else yield* source;
}

/** Not every browser can iterate a stream. */
async function* readStream(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
