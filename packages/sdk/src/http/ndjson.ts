import { later } from "./backoff.ts";

/**
 * The lines of a body as JSON. Throws when the body ends within a line, breaks, or is silent for longer than `silenceMs`:
 * whoever reads it carries on with another request.
 */
export async function* readLines(
  body: ReadableStream<Uint8Array>,
  silenceMs: number,
): AsyncGenerator<unknown, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await readWithin(reader, silenceMs);
      if (done) break;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line !== "") yield JSON.parse(line) as unknown;
    }
    if (rest !== "") throw new Error("the stream ended within a line");
  } finally {
    // The connection of a reader that leaves early is of no use to anybody.
    await reader.cancel().catch(() => undefined);
  }
}

async function readWithin(reader: ReadableStreamDefaultReader<Uint8Array>, silenceMs: number) {
  const stop = later(silenceMs, () => void reader.cancel(new Error("the stream is silent")).catch(() => undefined));
  try {
    return await reader.read();
  } finally {
    stop();
  }
}
