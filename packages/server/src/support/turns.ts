/** A separate queue for each key. */
export class KeyedTurns<K> {
  readonly #turns = new Map<K, { turns: Turns; waiting: number }>();

  async take<T>(key: K, work: () => Promise<T>): Promise<T> {
    const entry = this.#turns.get(key) ?? { turns: new Turns(), waiting: 0 };
    this.#turns.set(key, entry);
    entry.waiting += 1;
    try {
      return await entry.turns.take(work);
    } finally {
      entry.waiting -= 1;
      if (entry.waiting === 0) this.#turns.delete(key);
    }
  }
}

/**
 * A queue for work that must not interleave: each piece starts when the one before has settled, in the order of the
 * calls.
 */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  take<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(work);
    this.#last = turn.catch(() => undefined);
    return turn;
  }
}
