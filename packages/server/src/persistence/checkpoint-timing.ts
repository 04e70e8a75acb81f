import { deadlineAfter, firstToAbort, SandboxError } from "@atoll/protocol";

const hourMs = 60 * 60_000;

/** The longest time of a transfer. After it, what the transfer found in the store at its beginning may be gone. */
const longestTransferMs = 6 * hourMs;

/**
 * The age up to which a stored part that no manifest names is used again. No collector can have condemned a younger
 * one.
 */
export const reusableMs = 6 * hourMs;

/**
 * How long the collector waits before it removes what no manifest needs. It is longer than `reusableMs` and the longest
 * transfer together; the rest is for clocks that differ.
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
