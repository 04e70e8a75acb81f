/** One holder per key at a time, in this process. Who comes later waits and then finds what the first has made. */
export class KeyedLock {
  readonly #tails = new Map<string, Promise<void>>();

  async acquire(key: string): Promise<Disposable> {
    const before = this.#tails.get(key);
    let release = (): void => {};
    const released = new Promise<void>((resolve) => (release = resolve));
    const tail = (before ?? Promise.resolve()).then(() => released);
    this.#tails.set(key, tail);
    await before;
    return {
      [Symbol.dispose]: () => {
        release();
        if (this.#tails.get(key) === tail) this.#tails.delete(key);
      },
    };
  }
}
