import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { FileObjectStore } from "@atoll/storage";
import { afterAll, beforeAll, expect, test } from "vitest";
import { StoreProcess } from "../support/store-process/store-process.ts";
import { makeDataDir } from "../support/test-root.ts";

const processes = 4;
let directory = "";

beforeAll(async () => {
  directory = await makeDataDir();
});

afterAll(async () => {
  await rm(directory, { recursive: true, force: true });
});

test("processes that increment one object lose no increment", async () => {
  const path = join(directory, "count");
  await mkdir(path);
  const children = Array.from(
    { length: processes },
    () => new StoreProcess(path, { do: "count", key: "counter", times: 15 }),
  );
  expect(await Promise.all(children.map((child) => child.end()))).toEqual(children.map(() => "exit 0"));
  const store = await FileObjectStore.open(path);
  expect((await store.get("counter"))?.data.toString()).toBe(String(processes * 15));
});

test("processes that use an object as a lock exclude each other, also while others sweep", async () => {
  const path = join(directory, "lock");
  await mkdir(path);
  const children = Array.from(
    { length: processes },
    () => new StoreProcess(path, { do: "lock", key: "some/place", times: 10 }),
  );
  const store = await FileObjectStore.open(path);
  const ended = new AbortController();
  const sweeping = (async () => {
    while (!ended.signal.aborted) await store.sweep();
  })();
  expect(await Promise.all(children.map((child) => child.end()))).toEqual(children.map(() => "exit 0"));
  ended.abort();
  await sweeping;
  expect((await store.get("some/place/counter"))?.data.toString()).toBe(String(processes * 10));
  expect(await store.get("some/place/lock")).toBeUndefined();
  await store.close();
});

test("of several processes that create the same objects, exactly one wins each object", async () => {
  const path = join(directory, "claim");
  await mkdir(path);
  const keys = Array.from({ length: 40 }, (_, index) => `claims/${index}`);
  const children = Array.from(
    { length: processes },
    (_, index) => new StoreProcess(path, { do: "claim", keys, name: `process ${index}` }),
  );
  expect(await Promise.all(children.map((child) => child.end()))).toEqual(children.map(() => "exit 0"));
  const won = children.flatMap((child, index) =>
    child.facts.flatMap((fact) => (fact.won ?? []).map((key) => ({ key, name: `process ${index}` }))),
  );
  expect(won.map((claim) => claim.key).toSorted()).toEqual(keys.toSorted());
  const store = await FileObjectStore.open(path);
  for (const { key, name } of won) expect((await store.get(key))?.data.toString()).toBe(name);
});
