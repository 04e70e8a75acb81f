/** Names of things that are in use and must not be removed, with the number of users of each. */
export class Pins {
  readonly #counts = new Map<string, number>();

  has(name: string): boolean {
    return this.#counts.has(name);
  }

  /** Pins the names until the returned function is called; calling it again does nothing. */
  pin(names: readonly string[]): () => void {
    for (const name of names) this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1);
    let isPinned = true;
    return () => {
      for (const name of isPinned ? names : []) {
        const left = (this.#counts.get(name) ?? 1) - 1;
        if (left === 0) this.#counts.delete(name);
        else this.#counts.set(name, left);
      }
      isPinned = false;
    };
  }
}
