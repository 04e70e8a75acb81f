const shortestMs = 200;
const longestMs = 60_000;

/**
 * Tries with ever longer time limits until one leaves the process time to get ready before it is reached, however busy
 * the machine is. The last outcome is the one that counts.
 */
export async function withTimeToStart<T>(
  attempt: (timeoutMs: number) => Promise<T>,
  wasReady: (outcome: T) => boolean,
): Promise<T> {
  for (let timeoutMs = shortestMs; ; timeoutMs *= 4) {
    const outcome = await attempt(timeoutMs);
    if (wasReady(outcome) || timeoutMs > longestMs) return outcome;
  }
}
