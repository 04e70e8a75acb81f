import { randomBytes } from "node:crypto";
import type { Engine } from "@atoll/engine";
import { SandboxError } from "@atoll/protocol";
import { Leases, type ObjectStore } from "@atoll/storage";
import { pino } from "pino";
import { beforeEach, expect, test } from "vitest";
import type { CheckpointArchive } from "../../src/persistence/checkpoint-archive.ts";
import { CheckpointCollector } from "../../src/persistence/checkpoint-collector.ts";
import { manifestKey } from "../../src/persistence/checkpoint-keys.ts";
import { KillSignals } from "../../src/persistence/kill-signals.ts";
import { readLeftBehind } from "../../src/persistence/left-behind.ts";
import { OwnedLeases } from "../../src/persistence/owned-leases.ts";
import { SandboxHandle, type SandboxStores } from "../../src/persistence/sandbox-handle.ts";
import { neededCheckpoints } from "../../src/persistence/sandbox-metadata.ts";
import { StoredCheckpoints } from "../../src/persistence/stored-checkpoints.ts";
import { log, makeDirectory, makeMachine, makeStore, sandboxId } from "./archive-lab.ts";
import { metadataOf } from "./sample-metadata.ts";

const { signal } = new AbortController();
const last = 3;

let store: ObjectStore;
beforeEach(async () => {
  store = await makeStore();
});

/** Returns the same store, and calls `happen` before its call of this number. */
function interrupted(at: number, happen: () => Promise<void>): { between: ObjectStore; calls: () => number } {
  let calls = 0;
  const between = new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      if (name === "list") return value.bind(target) as unknown;
      return async (...given: unknown[]) => {
        calls += 1;
        if (calls === at) await happen();
        return value.apply(target, given) as unknown;
      };
    },
  });
  return { between, calls: () => calls };
}

const storesOn = (on: ObjectStore): SandboxStores => ({
  metadataStore: on,
  checkpointStore: on,
  leases: new Leases({ store, self: { id: "a", url: "http://a" } }),
});

const collectorOn = (on: ObjectStore): CheckpointCollector =>
  new CheckpointCollector({
    store: on,
    policy: { keepLast: 1, keepForMs: 0 },
    statusOf: async (id) => {
      const metadata = await SandboxHandle.read(storesOn(on), id);
      return metadata && { isKilled: metadata.isKilled, needed: neededCheckpoints(metadata) };
    },
    log,
  });

/** Publishes three checkpoints of a sandbox that is based on the last. */
async function publishAll(): Promise<SandboxHandle> {
  const { engine, archive } = await makeMachine(store);
  const layers = [engine.layer(`${sandboxId}-1`, randomBytes(100))];
  for (let n = 1; n <= last; n += 1) {
    await engine.checkpoint(sandboxId, n, { layers, memory: { "checkpoint.img": randomBytes(100) } });
    await archive.publish(sandboxId, n, { epoch: 1, signal });
  }
  const handle = await SandboxHandle.createPersistent(storesOn(store), metadataOf(sandboxId), {});
  await handle.write({ state: "paused", checkpoint: { n: last, createdAtMs: 1 } });
  return handle;
}

async function checkpointsOn(
  on: ObjectStore,
  handle: SandboxHandle,
  // Copies are looked up in the store, if nothing else is given.
  { archive: given, engine = {} as Engine }: { archive?: CheckpointArchive; engine?: Engine } = {},
): Promise<StoredCheckpoints> {
  const owned = new OwnedLeases();
  owned.add(handle);
  const archive = given ?? (await makeMachine(on)).archive;
  const kills = new KillSignals();
  return new StoredCheckpoints({
    archive,
    sandboxStores: storesOn(on),
    engine,
    owned,
    kills,
    closing: signal,
    log: pino({ enabled: false }),
  });
}

const isThere = async (n: number): Promise<boolean> => (await store.stat(manifestKey(sandboxId, n))) !== undefined;

test("a checkpoint that is pinned while a collector is stopped at any step exists, or the pin fails", async () => {
  const found = { claimed: 0, gone: 0 };
  for (let at = 1; ; at += 1) {
    store = await makeStore();
    const handle = await publishAll();
    let claimed: boolean | undefined;
    const { between, calls } = interrupted(at, async () => {
      claimed = (await (await checkpointsOn(store, handle)).pin(handle, 1)) !== undefined;
    });
    await collectorOn(between).collect();
    if (claimed === undefined) {
      expect(calls()).toBeLessThan(at);
      break;
    }
    expect({ at, isThere: await isThere(1) }).toEqual({ at, isThere: claimed });
    found[claimed ? "claimed" : "gone"] += 1;
    // Checkpoints that are not pinned are removed all the same.
    expect(await isThere(2)).toBe(false);
    await handle.release();
  }
  expect(found.claimed).toBeGreaterThan(5);
  expect(found.gone).toBeGreaterThan(0);
});

test("a collector that runs between two steps of a pin removes the checkpoint before it, or not at all", async () => {
  const found = { claimed: 0, gone: 0 };
  for (let at = 1; ; at += 1) {
    store = await makeStore();
    const handle = await publishAll();
    let hasCollected = false;
    const { between } = interrupted(at, async () => {
      hasCollected = true;
      await collectorOn(store).collect();
    });
    const claimed = (await (await checkpointsOn(between, handle)).pin(handle, 1)) !== undefined;
    if (!hasCollected) break;
    expect({ at, isThere: await isThere(1) }).toEqual({ at, isThere: claimed });
    expect(handle.metadata.wanted).toBe(claimed ? 1 : undefined);
    found[claimed ? "claimed" : "gone"] += 1;
    await handle.release();
  }
  expect(found.claimed + found.gone).toBeGreaterThan(2);
});

test("a removal by a suspended server keeps a checkpoint to which another server rolls back by then", async () => {
  for (let at = 1; ; at += 1) {
    store = await makeStore();
    const first = await publishAll();
    let claimed: boolean | undefined;
    const { between } = interrupted(at, async () => {
      await first.release();
      const next = await SandboxHandle.attachPersistent(storesOn(store), sandboxId, { patienceMs: 0 });
      claimed = (await (await checkpointsOn(store, next)).pin(next, 1)) !== undefined;
      await next.release();
    });
    const removing = (await checkpointsOn(between, first)).remove(sandboxId, 1, async () => false);
    const removed = await removing.catch((error: unknown) => error);
    if (claimed === undefined) break;
    expect({ at, isThere: await isThere(1) }).toEqual({ at, isThere: claimed });
    if (claimed) expect(removed).toMatchObject({ code: "in_use" });
  }
});

test("what rollbacks left behind is stored with or without the lease, after its number was reserved", async () => {
  const handle = await publishAll();
  let isBroken = true;
  const between = new Proxy(store, {
    get: (target, name) => {
      if (name === "upload" && isBroken)
        return () => Promise.reject(new SandboxError("storage_failed", "Cannot store"));
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
  const { engine: here, archive } = await makeMachine(between);
  const [reserved, late, never] = [last + 1, last + 2, last + 3];
  const layers = [here.layer(`${sandboxId}-${reserved}`, randomBytes(100))];
  for (const n of [reserved, late]) await here.checkpoint(sandboxId, n, { layers });
  const ownerDir = await makeDirectory();
  // The object has only what is used of an engine: a directory beside the sandbox, and the local checkpoints.
  const engine = {
    get: () => ({ ownerDir }),
    checkpoints: async () => [{ n: reserved }, { n: late }],
  } as unknown as Engine;
  const checkpoints = await checkpointsOn(between, handle, { archive, engine });
  await handle.write({ nextCheckpoint: reserved + 1 });
  for (const n of [reserved, late, never]) await checkpoints.recordLeftBehind(handle, n);

  expect(await checkpoints.storeLeftBehind(sandboxId)).toBe(false);
  expect((await readLeftBehind({ ownerDir })).map(({ n }) => n)).toEqual([reserved, late]);
  expect([await isThere(reserved), handle.metadata.nextCheckpoint]).toEqual([false, late + 1]);
  await handle.release();
  isBroken = false;
  expect(await checkpoints.storeLeftBehind(sandboxId)).toBe(true);
  expect([await isThere(reserved), await isThere(late), await readLeftBehind({ ownerDir })]).toEqual([true, true, []]);
});

test("a checkpoint left behind under a number that others may have used is not stored", async () => {
  const handle = await publishAll();
  const { engine: here, archive } = await makeMachine(store);
  const n = last + 1;
  await here.checkpoint(sandboxId, n, { layers: [here.layer(`${sandboxId}-${n}`, randomBytes(100))] });
  const ownerDir = await makeDirectory();
  const engine = { get: () => ({ ownerDir }), checkpoints: async () => [{ n }] } as unknown as Engine;
  const checkpoints = await checkpointsOn(store, handle, { archive, engine });
  await handle.write({ nextCheckpoint: n });
  await checkpoints.recordLeftBehind(handle, n);
  await handle.release();
  expect(await checkpoints.storeLeftBehind(sandboxId)).toBe(true);
  expect([await isThere(n), await readLeftBehind({ ownerDir })]).toEqual([false, []]);
});
