import { isSandboxError } from "@atoll/protocol";
import type { ByteRange } from "../object-store.ts";
import { pauseBeforeRetry } from "./retry.ts";

/** How often in a row a stream may end early without a single new byte. */
const fruitlessLimit = 4;

/**
 * Reads all bytes of a range: when a stream ends early, the next one begins where it stopped. `open` resolves with a
 * stream of the part of a range that the object has.
 */
export async function* resumedRead(
  range: ByteRange,
  signal: AbortSignal,
  open: (range: ByteRange) => Promise<AsyncIterable<Buffer>>,
): AsyncGenerator<Buffer, void, undefined> {
  const end = range.offset + range.length;
  let offset = range.offset;
  let fruitless = 0;
  while (offset < end) {
    const before = offset;
    let failure: unknown = new Error(`The stream ended at byte ${offset} of ${end}`);
    try {
      for await (const chunk of await open({ offset, length: end - offset })) {
        offset += chunk.length;
        yield chunk;
      }
    } catch (error) {
      signal.throwIfAborted();
      if (!canGoOn(error)) throw error;
      failure = error;
    }
    if (offset >= end) return;
    fruitless = offset > before ? 0 : fruitless + 1;
    if (fruitless > fruitlessLimit) throw failure;
    await pauseBeforeRetry(fruitless, signal);
  }
}

/** A request that the store refuses, or that asks for a version that is gone, would fail again. */
function canGoOn(error: unknown): boolean {
  if (isSandboxError(error, "unavailable")) return error.details["reason"] !== "replaced";
  return !isSandboxError(error);
}
