interface Bucket {
  tokens: number;
  filledAtMs: number;
}

/**
 * Limits rates with one bucket per key. A bucket fills at the key's rate and holds a minute's worth, at most
 * `maxBurst`.
 */
export class RateLimiter {
  #buckets = new Map<string, Bucket>();
  #maxBurst: number;

  constructor(options: { maxBurst?: number } = {}) {
    this.#maxBurst = options.maxBurst ?? 1_000;
  }

  /** Returns 0 when the request may proceed, otherwise the milliseconds until one may. */
  take(key: string, perMinute: number, nowMs: number = performance.now()): number {
    const size = Math.max(1, Math.min(perMinute, this.#maxBurst));
    const bucket = this.#buckets.get(key) ?? { tokens: size, filledAtMs: nowMs };
    this.#buckets.set(key, bucket);
    const perMs = perMinute / 60_000;
    bucket.tokens = Math.min(size, bucket.tokens + (nowMs - bucket.filledAtMs) * perMs);
    bucket.filledAtMs = nowMs;
    if (bucket.tokens < 1) return Math.ceil((1 - bucket.tokens) / perMs);
    bucket.tokens -= 1;
    return 0;
  }

  forget(key: string): void {
    this.#buckets.delete(key);
  }
}
