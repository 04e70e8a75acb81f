import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FileObjectStore, type ObjectStore } from "@atoll/storage";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ServerIdentity } from "../../src/persistence/server-identity.ts";
import { identifyStore } from "../../src/persistence/store-identity.ts";

let dir: string;
let store: ObjectStore;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-identity-"));
  store = await FileObjectStore.open(join(dir, "store"));
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

test("all who ask at once are told the same name of a new store, and another store has another one", async () => {
  const names = await Promise.all(Array.from({ length: 8 }, () => identifyStore(store)));
  expect(new Set(names).size).toBe(1);
  expect(await identifyStore(store)).toBe(names[0]);
  const other = await FileObjectStore.open(join(dir, "other"));
  expect(await identifyStore(other)).not.toBe(names[0]);
  await other.close();
});

test("a name that cannot be read is told, and not replaced", async () => {
  await store.put("identity.json", Buffer.from("{"));
  await expect(identifyStore(store)).rejects.toMatchObject({ code: "storage_failed" });
  expect((await store.get("identity.json"))?.data.toString()).toBe("{");
});

test("a server keeps its name and its store over restarts, and only its store on another machine", async () => {
  const first = await ServerIdentity.load(dir);
  await first.rememberMetadataStore("store-1");
  const again = await ServerIdentity.load(dir);
  expect([again.id, again.metadataStore]).toEqual([first.id, "store-1"]);
  const path = join(dir, "server.json");
  await writeFile(path, (await readFile(path, "utf8")).replace(/"machine":"[^"]*"/, '"machine":"elsewhere"'));
  const copied = await ServerIdentity.load(dir);
  expect(copied.id).not.toBe(first.id);
  expect(copied.metadataStore).toBe("store-1");
});
