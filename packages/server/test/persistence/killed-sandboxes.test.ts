import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxId } from "@atoll/protocol";
import { FileObjectStore, Leases, type ObjectStore } from "@atoll/storage";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test } from "vitest";
import { removeLongKilled } from "../../src/persistence/killed-sandboxes.ts";
import { SandboxHandle, type SandboxStores } from "../../src/persistence/sandbox-handle.ts";
import { metadataOf } from "./sample-metadata.ts";

const day = 24 * 60 * 60_000;
const signal = new AbortController().signal;
const log = pino({ enabled: false });
let dir: string;
let store: ObjectStore;
let sandboxStores: SandboxStores;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-killed-"));
  store = await FileObjectStore.open(dir);
  sandboxStores = {
    metadataStore: store,
    checkpointStore: store,
    leases: new Leases({ store, self: { id: "a", url: "" } }),
  };
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

const idOf = (letter: string): SandboxId => SandboxId.parse(letter.repeat(20));

async function create(letter: string, { isKilled }: { isKilled: boolean }): Promise<SandboxId> {
  const id = idOf(letter);
  const handle = await SandboxHandle.createPersistent(sandboxStores, metadataOf(id), {});
  if (isKilled) await handle.markKilled();
  await handle.release();
  return id;
}

async function keys(): Promise<string[]> {
  const found: string[] = [];
  for await (const { key } of store.list("")) found.push(key);
  return found;
}

const remove = (afterMs: number): Promise<SandboxId[]> =>
  removeLongKilled(sandboxStores, { nowMs: Date.now() + afterMs, signal, log });

test("a killed sandbox is remembered for a week, and then removed with its lease; nothing else is", async () => {
  const killed = await create("a", { isKilled: true });
  const paused = await create("b", { isKilled: false });
  const before = await keys();
  expect(await remove(6 * day)).toEqual([]);
  expect(await keys()).toEqual(before);
  expect(await SandboxHandle.read(sandboxStores, killed)).toMatchObject({ isKilled: true, facts: { env: {} } });
  expect(await remove(8 * day)).toEqual([killed]);
  expect(await keys()).toEqual(before.filter((key) => key.includes(paused)));
});

test("a killed sandbox is remembered as long as a checkpoint of it is stored", async () => {
  const killed = await create("a", { isKilled: true });
  const manifest = `checkpoints/${killed}/1/manifest.json`;
  await store.put(manifest, Buffer.from("{}"));
  expect(await remove(8 * day)).toEqual([]);
  await store.remove(manifest);
  expect(await remove(8 * day)).toEqual([killed]);
});

test("a lease without metadata is removed when it was not written for a week", async () => {
  const killed = await create("a", { isKilled: true });
  await store.remove(`sandboxes/${killed}/metadata.json`);
  await remove(6 * day);
  expect(await keys()).toEqual([`sandboxes/${killed}/lease.json`]);
  await remove(8 * day);
  expect(await keys()).toEqual([]);
});

test("unreadable metadata stay, and do not prevent the removal of others", async () => {
  const unreadable = await create("a", { isKilled: true });
  await store.put(`sandboxes/${unreadable}/metadata.json`, Buffer.from("{"));
  const killed = await create("b", { isKilled: true });
  expect(await remove(8 * day)).toEqual([killed]);
  expect((await keys()).filter((key) => key.includes(unreadable))).toHaveLength(2);
});
