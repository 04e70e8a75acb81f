/** Random numbers that are repeated with the same seed. `ATOLL_FUZZ_SEED` repeats a run. */
export class SeededRandom {
  readonly seed: number;
  #state: number;

  constructor(seed: number) {
    this.seed = seed >>> 0;
    this.#state = this.seed;
  }

  /** Logs the seed, so that a failure can be repeated. */
  static forFuzz(what: string): SeededRandom {
    const given = process.env["ATOLL_FUZZ_SEED"];
    const seed = given === undefined ? Math.floor(Math.random() * 2 ** 32) : Number(given);
    // The console is used because the runner shows it for a test that fails.
    // oxlint-disable-next-line no-console
    console.log(`fuzz ${what}: ATOLL_FUZZ_SEED=${seed >>> 0}`);
    return new SeededRandom(seed);
  }

  /** Returns 0 to 2^32 - 1 (mulberry32). */
  u32(): number {
    this.#state = (this.#state + 0x6d2b_79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  below(limit: number): number {
    return this.u32() % limit;
  }

  oneOf<T>(choices: readonly T[]): T {
    const choice = choices[this.below(choices.length)];
    if (choice === undefined) throw new Error("There is nothing to choose from");
    return choice;
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length);
    for (let index = 0; index < length; index += 1) bytes[index] = this.u32();
    return bytes;
  }

  /** Yields the same bytes in pieces of random length. */
  *pieces(bytes: Buffer, longest: number): Generator<Buffer, void, void> {
    for (let start = 0; start < bytes.byteLength;) {
      const end = start + 1 + this.below(longest);
      yield bytes.subarray(start, end);
      start = end;
    }
  }
}
