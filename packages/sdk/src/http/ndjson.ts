import { later } from "./backoff.ts";
import type { ByteReader } from "./exchange.ts";

/**
 * The lines of a body as JSON. Throws when the body ends within a line, breaks, or is silent for longer than `silenceMs`:
 * whoever reads it carries on with another request.
 */
export async function* readLines(body: ByteReader, silenceMs: number): AsyncGenerator<unknown, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const piece = await readWithin(body, silenceMs);
      if (piece === undefined) break;
      const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line !== "") yield JSON.parse(line) as unknown;
    }
    if (rest !== "") throw new Error("the stream ended within a line");
  } finally {
    // The connection of a reader that leaves early is of no use to anybody.
    await body.cancel().catch(() => undefined);
  }
}

async function readWithin(body: ByteReader, silenceMs: number): Promise<Uint8Array | undefined> {
  const stop = later(silenceMs, () => void body.cancel(new Error("the stream is silent")).catch(() => undefined));
  try {
    return await body.read();
  } finally {
    stop();
  }
}
