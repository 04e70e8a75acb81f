import type { ByteReader } from "./exchange.ts";
import { idleTimeout } from "./idle-timeout.ts";

/**
 * Yields the lines of a body as JSON. Throws when the body ends within a line, breaks off, or is silent for longer than
 * `silenceMs`: the caller then continues with another request.
 */
export async function* readLines(body: ByteReader, silenceMs: number): AsyncGenerator<unknown, void, undefined> {
  const decoder = new TextDecoder();
  const lively = idleTimeout(body, silenceMs);
  let rest = "";
  try {
    for (;;) {
      const piece = await lively.read();
      if (piece === undefined) break;
      const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line !== "") yield JSON.parse(line) as unknown;
    }
    if (rest !== "") throw new Error("the stream ended within a line");
  } finally {
    // The connection of a reader that leaves early cannot be used again.
    await body.cancel().catch(() => undefined);
  }
}
