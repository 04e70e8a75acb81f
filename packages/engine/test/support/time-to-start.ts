const shortestMs = 200;
const longestMs = 60_000;

/**
 * Repeats an attempt with longer and longer time limits until the process is ready before the limit is reached, however
 * busy the machine is. The last outcome counts.
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
