import type { ObjectStore } from "@atoll/storage";

export interface StoreCall {
  name: keyof ObjectStore;
  key: string;
  sizeBytes: number;
}

/**
 * Returns the same store, which calls `before` before each call, and `after` when it succeeded. An error that they
 * throw is the caller's result.
 */
export function watchStore(
  store: ObjectStore,
  { before = () => {}, after = () => {} }: { before?: (call: StoreCall) => void; after?: (call: StoreCall) => void },
): ObjectStore {
  return new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      return (key: string, ...rest: unknown[]) => {
        const options = rest.at(-1) as { sizeBytes?: number } | undefined;
        const call = { name: name as keyof ObjectStore, key, sizeBytes: options?.sizeBytes ?? 0 };
        const run = () => value.apply(target, [key, ...rest]) as unknown;
        if (name === "list") return watchList(call, run as () => AsyncIterable<unknown>, { before, after });
        return (async () => {
          before(call);
          const result = await run();
          after(call);
          return result;
        })();
      };
    },
  });
}

async function* watchList(
  call: StoreCall,
  run: () => AsyncIterable<unknown>,
  { before, after }: { before: (call: StoreCall) => void; after: (call: StoreCall) => void },
): AsyncIterable<unknown> {
  before(call);
  yield* run();
  after(call);
}
