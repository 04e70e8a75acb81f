/**
 * Wakes all waiting callers. A caller that checks a condition and then waits, without an await in between, misses
 * nothing.
 */
export class Bell {
  #waiting = new Set<() => void>();

  ring(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  /** Resolves at the next ring, or rejects with `signal.reason` if it aborts first. */
  async wait(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const wake = (): void => {
        signal?.removeEventListener("abort", abort);
        resolve();
      };
      const abort = (): void => {
        this.#waiting.delete(wake);
        reject(signal?.reason as Error);
      };
      this.#waiting.add(wake);
      signal?.addEventListener("abort", abort, { once: true });
    });
  }
}
