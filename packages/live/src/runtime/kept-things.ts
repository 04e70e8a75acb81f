type Dispose = (thing: never) => unknown;

/** What a service owns beside its state: servers, sockets, files. They outlast reloads and end with the service. */
export class KeptThings {
  readonly #things = new Map<string, { thing: Promise<object>; dispose: Dispose | undefined }>();

  keep<T extends object>(name: string, make: () => T | Promise<T>, dispose?: (thing: T) => unknown): Promise<T> {
    const known = this.#things.get(name);
    if (known !== undefined) return known.thing as Promise<T>;
    const thing = Promise.resolve(make());
    this.#things.set(name, { thing, dispose });
    // What could not be made can be tried again.
    thing.catch(() => this.#things.delete(name));
    return thing;
  }

  /** Disposes of all, the newest first. What fails goes to the callback and keeps none of the others. */
  async disposeAll(onError: (error: unknown) => void): Promise<void> {
    const things = [...this.#things.values()];
    this.#things.clear();
    for (const { thing, dispose } of things.toReversed()) {
      try {
        await disposeOf(await thing, dispose);
      } catch (error) {
        onError(error);
      }
    }
  }
}

async function disposeOf(thing: object, dispose: Dispose | undefined): Promise<void> {
  if (dispose !== undefined) {
    await dispose(thing as never);
    return;
  }
  const disposable = thing as Partial<AsyncDisposable & Disposable> & { close?: () => unknown; end?: () => unknown };
  await (disposable[Symbol.asyncDispose]?.() ??
    disposable[Symbol.dispose]?.() ??
    disposable.close?.() ??
    disposable.end?.());
}
