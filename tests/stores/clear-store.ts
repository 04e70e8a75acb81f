import type { ObjectStore } from "@atoll/storage";

const atOnce = 16;

/** Removes every object, so that the tests leave a bucket empty that others use, too. */
export async function clearStore(store: ObjectStore): Promise<void> {
  const keys: string[] = [];
  for await (const { key } of store.list("")) keys.push(key);
  const work = async () => {
    for (let key = keys.pop(); key !== undefined; key = keys.pop()) await store.remove(key);
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}
