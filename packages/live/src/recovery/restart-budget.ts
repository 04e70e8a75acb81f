/** How often an app ended by itself within a period. */
export class RestartBudget {
  readonly #windowMs: number;
  #ends: number[] = [];

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  /** Counts an end. Returns how many came before it within the period. */
  count(): number {
    const now = performance.now();
    const before = this.#ends.filter((at) => now - at < this.#windowMs);
    this.#ends = [...before, now];
    return before.length;
  }

  /** Other code begins without a past. */
  reset(): void {
    this.#ends = [];
  }
}
