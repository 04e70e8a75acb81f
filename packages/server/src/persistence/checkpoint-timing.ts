import { deadlineAfter, firstToAbort, SandboxError } from "@atoll/protocol";

const hourMs = 60 * 60_000;

/** A transfer that takes longer is given up: what it found in the store at its beginning may be gone. */
const longestTransferMs = 6 * hourMs;

/**
 * Something in the store that no manifest names is used again only while it is younger than this: no collector has had
 * the time to condemn it.
 */
export const reusableMs = 6 * hourMs;

/**
 * How long the collector waits before it removes what nobody needs. Longer than the age up to which something is used
 * again and the longest transfer together; the rest is for clocks that differ.
 */
export const collectionGraceMs = 24 * hourMs;

/** Runs one transfer. Rejects with `timed_out` when it takes too long. */
export async function asTransfer<T>(
  asked: string,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const limit = deadlineAfter(longestTransferMs);
  try {
    return await work(firstToAbort(signal, limit));
  } catch (error) {
    if (!limit.aborted || signal.aborted) throw error;
    throw new SandboxError("timed_out", `Cannot ${asked}: it took more than ${longestTransferMs} ms`, { cause: error });
  }
}
