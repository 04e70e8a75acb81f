import { randomBytes } from "node:crypto";
import type { SandboxId } from "@atoll/protocol";
import type { ObjectStore } from "@atoll/storage";
import { beforeEach, expect, test } from "vitest";
import { CheckpointCollector, type RetentionStatus } from "../../src/persistence/checkpoint-collector.ts";
import { manifestKey } from "../../src/persistence/checkpoint-keys.ts";
import { log, makeMachine, makeStore, otherId, recordOf, sandboxId, type Machine } from "./archive-lab.ts";
import { watchStore } from "./watch-store.ts";

const { signal } = new AbortController();
const graceMs = 1_000;

let store: ObjectStore;
let here: Machine;
let nowMs: number;
let standings: Map<SandboxId, RetentionStatus>;

beforeEach(async () => {
  store = await makeStore();
  here = await makeMachine(store);
  nowMs = 1_000_000;
  standings = new Map();
});

function collector(on: ObjectStore = store, policy = { keepLast: 2, keepForMs: 0 }): CheckpointCollector {
  return new CheckpointCollector({
    store: on,
    policy,
    statusOf: async (id) => standings.get(id),
    log,
    graceMs,
    nowMs: () => nowMs,
  });
}

/** Publishes checkpoints, each based on the one before. */
async function publish(
  id: SandboxId,
  count: number,
  base: Awaited<ReturnType<Machine["engine"]["checkpoint"]>>["layers"] = [],
) {
  let layers = base;
  for (let n = 1; n <= count; n += 1) {
    layers = [here.engine.layer(`${id}-${n}`, randomBytes(500)), ...layers];
    await here.engine.checkpoint(id, n, { layers, memory: { "checkpoint.img": randomBytes(800) } });
    await here.archive.publish(id, n, { epoch: 1, signal });
  }
  return layers;
}

async function looks(times: number, on: CheckpointCollector = collector()): Promise<string[]> {
  const removed: string[] = [];
  for (let look = 0; look < times; look += 1) {
    removed.push(...(await on.collect()).removed);
    nowMs += graceMs + 1;
  }
  return removed;
}

const numbersOf = async (id: SandboxId): Promise<number[]> => (await here.archive.list(id)).map(({ n }) => n);

/** Asserts that a machine without any layer can fetch every checkpoint that is listed. */
async function assertWhole(...ids: SandboxId[]): Promise<void> {
  for (const id of ids) {
    for (const n of await numbersOf(id)) {
      const there = await makeMachine(store);
      await there.archive.fetch(id, n, recordOf(id), { signal });
    }
  }
}

test("the newest checkpoints stay and the current one; their parts stay, and the rest is removed", async () => {
  await publish(sandboxId, 5);
  standings.set(sandboxId, { isKilled: false, needed: [2] });
  const removed = await looks(3);
  expect(await numbersOf(sandboxId)).toEqual([2, 4, 5]);
  // The layers of all five are still needed, as each is based on those before.
  expect(removed.map((key) => key.split("/").slice(0, 3).join("/")).toSorted()).toEqual([
    `checkpoints/${sandboxId}/1`,
    `checkpoints/${sandboxId}/3`,
  ]);
  await assertWhole(sandboxId);
});

test("a checkpoint stays if a rollback to it begins while it is being retired", async () => {
  await publish(sandboxId, 4);
  const notes: string[] = [];
  const watched = watchStore(store, {
    after: ({ name, key }) => {
      if (name !== "put" || !key.startsWith("collection/checkpoints/retired/")) return;
      notes.push(key);
      // The rollback begins between the check and the removal.
      if (notes.length === 2) standings.set(sandboxId, { isKilled: false, needed: [2] });
    },
  });
  const { retired } = await collector(watched).collect();
  expect(retired).toEqual([manifestKey(sandboxId, 1)]);
  expect(await numbersOf(sandboxId)).toEqual([2, 3, 4]);
});

test("checkpoints that the policy calls young stay", async () => {
  await publish(sandboxId, 5);
  nowMs = 5_000;
  await collector(store, { keepLast: 1, keepForMs: 2_000 }).collect();
  expect(await numbersOf(sandboxId)).toEqual([3, 4, 5]);
});

test("a publish retires expired checkpoints of this sandbox only", async () => {
  await publish(sandboxId, 3);
  await publish(otherId, 3);
  const one = collector();
  one.published(sandboxId);
  await expect.poll(() => numbersOf(sandboxId)).toEqual([2, 3]);
  await one.close();
  expect(await numbersOf(otherId)).toEqual([1, 2, 3]);
});

test("everything of a killed sandbox is removed, except what its copies need", async () => {
  const layers = await publish(sandboxId, 3);
  await publish(otherId, 1, layers);
  standings.set(sandboxId, { isKilled: true, needed: [3] });
  await looks(3);
  expect(await numbersOf(sandboxId)).toEqual([]);
  const left: string[] = [];
  for await (const { key } of store.list("checkpoints/")) left.push(key);
  expect(left.every((key) => key.startsWith(`checkpoints/${otherId}/`))).toBe(true);
  await assertWhole(otherId);
});

test("nothing of a sandbox with unreadable metadata is retired, and others are collected", async () => {
  await publish(sandboxId, 4);
  await publish(otherId, 4);
  const one = new CheckpointCollector({
    store,
    policy: { keepLast: 1 },
    statusOf: async (id) => {
      if (id === sandboxId) throw new Error("The metadata is gone");
      return undefined;
    },
    log,
    graceMs,
    nowMs: () => nowMs,
  });
  await one.collect();
  expect(await numbersOf(sandboxId)).toEqual([1, 2, 3, 4]);
  expect(await numbersOf(otherId)).toEqual([4]);
});

test("an unreadable manifest keeps all that may be its own, and images of others are collected", async () => {
  await publish(sandboxId, 4);
  await publish(otherId, 4);
  const broken = manifestKey(sandboxId, 2);
  const whole = await store.get(broken);
  await store.put(broken, Buffer.from("{"));
  const removed = await looks(3);
  expect(removed.map((key) => key.split("/").slice(0, 3).join("/")).toSorted()).toEqual([
    `checkpoints/${otherId}/1`,
    `checkpoints/${otherId}/2`,
  ]);
  // When the manifest is readable again, all of its parts are there.
  await store.put(broken, whole?.data ?? Buffer.alloc(0));
  expect(await numbersOf(sandboxId)).toEqual([1, 2, 3, 4]);
  await assertWhole(sandboxId, otherId);
});

test("a copy with an unreadable manifest keeps the layers of its origin, also when that is killed", async () => {
  await publish(otherId, 1, await publish(sandboxId, 2));
  const broken = manifestKey(otherId, 1);
  const whole = await store.get(broken);
  await store.put(broken, Buffer.from("{"));
  standings.set(sandboxId, { isKilled: true, needed: [] });
  await looks(4);
  expect(await numbersOf(sandboxId)).toEqual([]);
  await store.put(broken, whole?.data ?? Buffer.alloc(0));
  expect(await numbersOf(otherId)).toEqual([1]);
  await assertWhole(otherId);
});

test("parts of an interrupted upload are removed", async () => {
  await here.engine.checkpoint(sandboxId, 1, { layers: [here.engine.layer(`${sandboxId}-1`, randomBytes(500))] });
  const dying = watchStore(store, {
    before: ({ name }) => {
      if (name === "put") throw new Error("The server is killed");
    },
  });
  const dead = await makeMachine(dying);
  await dead.engine.checkpoint(sandboxId, 1, { layers: [dead.engine.layer(`${sandboxId}-1`, randomBytes(500))] });
  await expect(dead.archive.publish(sandboxId, 1, { epoch: 1, signal })).rejects.toThrow("killed");
  await here.archive.publish(sandboxId, 1, { epoch: 2, signal });
  const removed = await looks(3);
  expect(removed).toHaveLength(2);
  await assertWhole(sandboxId);
});

test("objects of other programs below the same names stay, and our own are removed", async () => {
  await publish(sandboxId, 4);
  const name = `${"0".repeat(64)}.plain.${"0".repeat(64)}.00000000`;
  const foreign = [
    "checkpoints/_SUCCESS",
    "checkpoints/epoch-10.pt",
    "checkpoints/run-1/manifest.json",
    `checkpoints/${sandboxId}/1/notes.txt`,
    `checkpoints/${sandboxId}/latest/owner/${name}`,
    // The next key is that of an Atoll whose prefix is "checkpoints".
    `checkpoints/checkpoints/${sandboxId}/1/owner/${name}`,
    `checkpoints/layers/${sandboxId}-1/${name}`,
    "collection/checkpoints/retired/readme",
    "layers/0.weight",
    `layers/conv2d/${name}`,
    `layers/${sandboxId}-1/${name}.bak`,
  ];
  for (const key of foreign) await store.put(key, Buffer.from("of others"));
  const left = [`checkpoints/${otherId}/1/owner/${name}`, `layers/${otherId}-1/${name}`];
  for (const key of left) await store.put(key, Buffer.from("left by a server that died"));
  const removed = await looks(3);
  expect(removed).toEqual(expect.arrayContaining(left));
  const there = new Set<string>();
  for await (const { key } of store.list("")) there.add(key);
  expect(foreign.filter((key) => !there.has(key))).toEqual([]);
  expect(await numbersOf(sandboxId)).toEqual([3, 4]);
  await assertWhole(sandboxId);
});

/** Asserts that everything that a manifest names exists. */
async function assertNeeded(...ids: SandboxId[]): Promise<void> {
  const there = new Set<string>();
  for await (const { key } of store.list("")) there.add(key);
  for (const id of ids) {
    const needs = (await here.archive.list(id)).flatMap(({ parts }) => parts.map(({ key }) => key));
    expect(needs.filter((key) => !there.has(key))).toEqual([]);
  }
}

test("a collector that crashes at any call removes nothing that is needed, and others complete its work", async () => {
  await publish(otherId, 1, await publish(sandboxId, 4));
  standings.set(sandboxId, { isKilled: false, needed: [1] });
  const deaths = { put: 0, remove: 0 };
  // The first collection retires, the next condemns what is no longer needed, and the last removes it.
  for (let look = 0; look < 3; look += 1) {
    for (let failing = 1; ; failing += 1) {
      let calls = 0;
      const dying = watchStore(store, {
        before: ({ name }) => {
          if (++calls < failing) return;
          if (calls === failing && (name === "put" || name === "remove")) deaths[name] += 1;
          throw new Error("The server is killed");
        },
      });
      const died = await collector(dying, { keepLast: 1, keepForMs: 0 })
        .collect()
        .then(
          () => false,
          () => true,
        );
      await assertNeeded(sandboxId, otherId);
      if (!died) break;
    }
    nowMs += graceMs + 1;
  }
  expect(deaths.put).toBeGreaterThan(2);
  expect(deaths.remove).toBeGreaterThan(2);
  expect(await numbersOf(sandboxId)).toEqual([1, 4]);
  const images: string[] = [];
  for await (const { key } of store.list(`checkpoints/${sandboxId}/`)) if (key.includes("/memory/")) images.push(key);
  expect(images.map((key) => key.split("/")[2])).toEqual(["1", "4"]);
  await assertWhole(sandboxId, otherId);
});

test("a closed collector does nothing more", async () => {
  await publish(sandboxId, 3);
  const one = collector();
  one.start();
  await one.close();
  one.published(sandboxId);
  await expect(one.collect()).rejects.toMatchObject({ name: "AbortError" });
  expect(await numbersOf(sandboxId)).toEqual([1, 2, 3]);
});
