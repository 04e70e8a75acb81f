import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DirectoryMark } from "@atoll/engine";
import { FileObjectStore, type ObjectStore } from "@atoll/storage";
import { afterEach, beforeEach, expect, test } from "vitest";
import { nameOfLock, ServerIdentity } from "../../src/persistence/server-identity.ts";
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

test("concurrent first readers get the same id of a new store, and another store has another one", async () => {
  const names = await Promise.all(Array.from({ length: 8 }, () => identifyStore(store)));
  expect(new Set(names).size).toBe(1);
  expect(await identifyStore(store)).toBe(names[0]);
  const other = await FileObjectStore.open(join(dir, "other"));
  expect(await identifyStore(other)).not.toBe(names[0]);
  await other.close();
});

test("an unreadable id is an error, and is not replaced", async () => {
  await store.put("identity.json", Buffer.from("{"));
  await expect(identifyStore(store)).rejects.toMatchObject({ code: "storage_failed" });
  expect((await store.get("identity.json"))?.data.toString()).toBe("{");
});

const here: DirectoryMark = { device: "1", inode: "12", bornNs: "1000" };

test("a server keeps its id and its store over restarts, and only its store on another machine", async () => {
  const first = await ServerIdentity.load(dir, here);
  await first.rememberMetadataStore("store-1");
  const again = await ServerIdentity.load(dir, { ...here, device: "2" });
  expect([again.id, again.metadataStore]).toEqual([first.id, "store-1"]);
  const path = join(dir, "server.json");
  await writeFile(path, (await readFile(path, "utf8")).replace(/"machine":"[^"]*"/, '"machine":"elsewhere"'));
  const copied = await ServerIdentity.load(dir, here);
  expect(copied.id).not.toBe(first.id);
  expect(copied.metadataStore).toBe("store-1");
});

test.for([
  { what: "another directory", mark: { ...here, inode: "13" } },
  { what: "one of the same number on another disk", mark: { ...here, bornNs: "1001" } },
])("$what with a copy of server.json is another server, which knows the former id", async ({ mark }) => {
  const first = await ServerIdentity.load(dir, here);
  const second = await ServerIdentity.load(dir, mark);
  expect(second.id).not.toBe(first.id);
  expect([second.wasId(first.id), second.wasId(second.id)]).toEqual([true, false]);
  expect((await ServerIdentity.load(dir, mark)).id).toBe(second.id);
  const third = await ServerIdentity.load(dir, here);
  expect([first.id, second.id].map((id) => third.wasId(id))).toEqual([true, true]);
});

test("a server with the file of an earlier version keeps its id, and is distinguished from later copies", async () => {
  const { id } = await ServerIdentity.load(dir, here);
  const path = join(dir, "server.json");
  const { directory: _, ...before } = JSON.parse(await readFile(path, "utf8"));
  await writeFile(path, JSON.stringify(before));
  expect((await ServerIdentity.load(dir, here)).id).toBe(id);
  expect((await ServerIdentity.load(dir, { ...here, inode: "13" })).id).not.toBe(id);
});

test("a server with an unreadable id does not start with another one", async () => {
  await writeFile(join(dir, "server.json"), '{"id":');
  await expect(ServerIdentity.load(dir, here)).rejects.toMatchObject({ code: "storage_failed" });
  expect(await readFile(join(dir, "server.json"), "utf8")).toBe('{"id":');
});

test("no two directories that exist at once have locks of the same name", async () => {
  const names = await Promise.all([here, { ...here, inode: "13" }, { ...here, device: "2" }].map(nameOfLock));
  expect(new Set(names).size).toBe(3);
  expect(await nameOfLock({ ...here, bornNs: "1001" })).toBe(names[0]);
});
