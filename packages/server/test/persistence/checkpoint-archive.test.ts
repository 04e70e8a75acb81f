import { randomBytes } from "node:crypto";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PhaseClock } from "@atoll/engine";
import { SandboxError } from "@atoll/protocol";
import type { ObjectStore } from "@atoll/storage";
import { describe, expect, test } from "vitest";
import { CheckpointArchive } from "../../src/persistence/checkpoint-archive.ts";
import { manifestKey } from "../../src/persistence/checkpoint-keys.ts";
import {
  FakeEngine,
  log,
  makeDirectory,
  makeMachine,
  makeStore,
  otherId,
  recordOf,
  sandboxId,
  type Machine,
} from "./archive-lab.ts";
import { watchStore, type StoreCall } from "./watch-store.ts";

const { signal } = new AbortController();
const text = (seed: string): Buffer => Buffer.from(`${seed} and a line of text that repeats itself\n`.repeat(4_000));

/** Saves two layers, an image of two files, and the owner's files. */
async function saveFirst({ engine }: Machine) {
  return engine.checkpoint(sandboxId, 1, {
    layers: [engine.layer(`${sandboxId}-1`, text("top")), engine.layer(`${otherId}-7`, randomBytes(50_000))],
    memory: { "checkpoint.img": randomBytes(300_000), "pages.img": Buffer.alloc(500_000) },
    owner: text("log"),
  });
}

/** Returns the store with a list of everything that is sent through it. */
function counted(store: ObjectStore): { store: ObjectStore; sent: StoreCall[] } {
  const sent: StoreCall[] = [];
  return { sent, store: watchStore(store, { after: (call) => void (call.name === "upload" && sent.push(call)) }) };
}

async function keysOf(store: ObjectStore): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of store.list("")) keys.push(key);
  return keys;
}

describe("a published checkpoint", () => {
  test("is complete on another machine, and leaves no temporary files", async () => {
    const store = await makeStore();
    const [here, there] = [await makeMachine(store), await makeMachine(store)];
    const manifest = await saveFirst(here);
    const [up, down] = [new PhaseClock(), new PhaseClock()];
    const stored = await here.archive.publish(sandboxId, 1, { epoch: 3, signal, clock: up });
    expect(stored).toMatchObject({ sandboxId, n: 1, epoch: 3, manifest });
    const encodings = Object.fromEntries(stored.parts.map(({ name, encoding }) => [name, encoding]));
    expect(encodings).toEqual({
      "memory/checkpoint.img": "plain",
      "memory/pages.img": "br",
      owner: "br",
      [`layer/${sandboxId}-1`]: "br",
      [`layer/${otherId}-7`]: "plain",
    });
    await there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal, clock: down });
    expect(there.engine.imported).toEqual([manifest]);
    expect(await there.archive.list(sandboxId)).toEqual([stored]);
    expect(Object.keys(up.phases)).toEqual(["upload", "verify"]);
    expect(Object.keys(down.phases)).toEqual(["download", "verify"]);
    for (const { scratchDir } of [here, there]) expect(await readdir(scratchDir)).toEqual([]);
  });

  test("shares its layers: the next one sends only new parts, and a machine fetches only missing layers", async () => {
    const { store, sent } = counted(await makeStore());
    const [here, there] = [await makeMachine(store), await makeMachine(store)];
    const first = await saveFirst(here);
    await here.archive.publish(sandboxId, 1, { epoch: 1, signal });
    await there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal });
    sent.length = 0;

    const image = randomBytes(1_000);
    const added = here.engine.layer(`${sandboxId}-2`, randomBytes(2_000));
    const layers = [added, ...first.layers];
    await here.engine.checkpoint(sandboxId, 2, { layers, memory: { "checkpoint.img": image } });
    await here.archive.publish(sandboxId, 2, { epoch: 1, signal });
    expect(sent.map(({ sizeBytes }) => sizeBytes).toSorted((one, two) => one - two)).toEqual([1_000, 2_000]);
    expect(here.engine.packed).toBe(3);

    const fetched: string[] = [];
    const watched = watchStore(store, { after: ({ name, key }) => void (name === "download" && fetched.push(key)) });
    const archive = await CheckpointArchive.open({
      store: watched,
      engine: there.engine,
      scratchDir: there.scratchDir,
      log,
    });
    await archive.fetch(sandboxId, 2, recordOf(sandboxId), { signal });
    expect(fetched.map((key) => key.split("/").slice(0, 2).join("/")).toSorted()).toEqual([
      `checkpoints/${sandboxId}`,
      `layers/${sandboxId}-2`,
    ]);
  });

  test("of a copy sends no layer that its origin has published", async () => {
    const { store, sent } = counted(await makeStore());
    const here = await makeMachine(store);
    const { layers } = await saveFirst(here);
    await here.archive.publish(sandboxId, 1, { epoch: 1, signal });
    sent.length = 0;
    await here.engine.checkpoint(otherId, 1, { layers, memory: { "checkpoint.img": randomBytes(1_000) } });
    await here.archive.publish(otherId, 1, { epoch: 1, signal });
    expect(sent.map(({ sizeBytes }) => sizeBytes)).toEqual([1_000]);
  });

  test("is the same however often it is published, and never becomes another", async () => {
    const { store, sent } = counted(await makeStore());
    const [here, stale] = [await makeMachine(store), await makeMachine(store)];
    await saveFirst(here);
    const stored = await here.archive.publish(sandboxId, 1, { epoch: 1, signal });
    sent.length = 0;
    expect(await here.archive.publish(sandboxId, 1, { epoch: 2, signal })).toEqual(stored);
    await saveFirst(stale);
    await expect(stale.archive.publish(sandboxId, 1, { epoch: 9, signal })).rejects.toMatchObject({
      code: "conflict",
      details: { sandboxId, checkpoint: 1, epoch: 1 },
    });
    expect(sent).toEqual([]);
    expect(await here.archive.list(sandboxId)).toEqual([stored]);
  });

  test("that two servers publish under the same number is complete, and from one of them", async () => {
    const store = await makeStore();
    const machines = [await makeMachine(store), await makeMachine(store)];
    const saved = await Promise.all(machines.map(saveFirst));
    const results = await Promise.allSettled(
      machines.map(({ archive }, epoch) => archive.publish(sandboxId, 1, { epoch, signal })),
    );
    const winner = results.findIndex(({ status }) => status === "fulfilled");
    expect(results[1 - winner]).toMatchObject({ status: "rejected", reason: { code: "conflict" } });
    const there = await makeMachine(store);
    await there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal });
    expect(there.engine.imported).toEqual([saved[winner]]);
  });

  test("that is removed is gone at once, and its parts later", async () => {
    const store = await makeStore();
    const here = await makeMachine(store);
    await saveFirst(here);
    const { parts } = await here.archive.publish(sandboxId, 1, { epoch: 1, signal });
    await here.archive.remove(sandboxId, 1);
    await here.archive.remove(sandboxId, 1);
    expect(await here.archive.list(sandboxId)).toEqual([]);
    expect(await keysOf(store)).toEqual(expect.arrayContaining(parts.map(({ key }) => key)));
    await expect(here.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal })).rejects.toMatchObject({
      code: "unrestorable",
      details: { part: "manifest.json" },
    });
  });
});

test("is removed with all others of its sandbox, also unreadable ones, and no other sandbox's are", async () => {
  const store = await makeStore();
  const here = await makeMachine(store);
  const { layers } = await saveFirst(here);
  await here.engine.checkpoint(otherId, 1, { layers });
  for (const id of [sandboxId, otherId]) await here.archive.publish(id, 1, { epoch: 1, signal });
  await store.put(manifestKey(sandboxId, 2), Buffer.from("{"));
  await here.archive.removeAll(sandboxId);
  const manifests = (await keysOf(store)).filter((key) => key.endsWith("manifest.json"));
  expect(manifests).toEqual([manifestKey(otherId, 1)]);
});

describe("a store that fails", () => {
  const unavailable = () => new SandboxError("unavailable", "Cannot reach the store");

  test.for(["before", "after", "for good"] as const)(
    "at any call (%s) leaves a checkpoint that is published or not, and the next attempt sends no part twice",
    async (when) => {
      for (let failing = 1; ; failing += 1) {
        const real = await makeStore();
        const { store: counting, sent } = counted(real);
        let calls = 0;
        const fail = (hits: boolean) => () => {
          if (hits) throw unavailable();
        };
        const broken = watchStore(counting, {
          before: () => fail(++calls === failing ? when !== "after" : when === "for good" && calls > failing)(),
          after: () => fail(when === "after" && calls === failing)(),
        });
        const here = await makeMachine(broken);
        const manifest = await saveFirst(here);
        const failed = await here.archive.publish(sandboxId, 1, { epoch: 1, signal }).then(
          () => false,
          () => true,
        );
        expect(await readdir(here.scratchDir)).toEqual([]);

        const again = await CheckpointArchive.open({ ...here, store: counting, log });
        for (const { parts } of await again.list(sandboxId)) {
          expect(await keysOf(real)).toEqual(expect.arrayContaining(parts.map(({ key }) => key)));
        }
        await again.publish(sandboxId, 1, { epoch: 1, signal });
        expect(sent.map(({ key }) => key.split(".")[0])).toHaveLength(5);
        const there = await makeMachine(real);
        await there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal });
        expect(there.engine.imported).toEqual([manifest]);
        if (!failed && calls < failing) break;
      }
    },
  );

  test("during a fetch leaves nothing behind, and the next one works", async () => {
    const store = await makeStore();
    const here = await makeMachine(store);
    await saveFirst(here);
    await here.archive.publish(sandboxId, 1, { epoch: 1, signal });
    for (let failing = 1; ; failing += 1) {
      let calls = 0;
      const before = () => {
        if (++calls === failing) throw unavailable();
      };
      const there = await makeMachine(watchStore(store, { before }));
      const fetching = there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal });
      const failed = await fetching.then(
        () => false,
        (error: unknown) => error,
      );
      expect(await readdir(there.scratchDir)).toEqual([]);
      if (failed === false) break;
      expect(failed).toMatchObject({ code: "unavailable" });
      expect(there.engine.imported).toEqual([]);
      await there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal });
    }
  });
});

test("an old part of an upload is sent again, as it may be collected; a part in a manifest is not", async () => {
  const { store, sent } = counted(await makeStore());
  const aged = new Proxy(store, {
    get: (target, name) =>
      name === "list"
        ? async function* old(...input: Parameters<ObjectStore["list"]>) {
            for await (const info of target.list(...input)) {
              yield { ...info, modifiedAtMs: info.modifiedAtMs - 7 * 60 * 60_000 };
            }
          }
        : (Reflect.get(target, name) as unknown),
  });
  const dying = watchStore(aged, {
    before: ({ name }) => {
      if (name === "put") throw new Error("The server is killed");
    },
  });
  const here = await makeMachine(dying);
  const { layers } = await saveFirst(here);
  await expect(here.archive.publish(sandboxId, 1, { epoch: 1, signal })).rejects.toThrow("killed");
  expect(sent).toHaveLength(5);
  const archive = await CheckpointArchive.open({ ...here, store: aged, log });
  const { parts } = await archive.publish(sandboxId, 1, { epoch: 1, signal });
  expect(sent).toHaveLength(10);
  expect(sent.slice(0, 5).map(({ key }) => key)).not.toContain(parts[0]?.key);

  await here.engine.checkpoint(sandboxId, 2, { layers });
  await archive.publish(sandboxId, 2, { epoch: 1, signal });
  expect(sent).toHaveLength(11);
});

test("an abort ends a transfer with its reason and leaves nothing in the scratch directory", async () => {
  const store = await makeStore();
  const stop = new AbortController();
  const reason = new Error("enough");
  const before = ({ name }: StoreCall) => {
    if (name === "upload") stop.abort(reason);
  };
  const here = await makeMachine(watchStore(store, { before }));
  await saveFirst(here);
  await expect(here.archive.publish(sandboxId, 1, { epoch: 1, signal: stop.signal })).rejects.toBe(reason);
  expect(await readdir(here.scratchDir)).toEqual([]);
  expect(await here.archive.list(sandboxId)).toEqual([]);
});

test("bytes that have changed on this machine are not stored", async () => {
  const store = await makeStore();
  const here = await makeMachine(store);
  await saveFirst(here);
  const { memory } = await here.engine.checkpointFiles(sandboxId, 1);
  const pages = memory.find(({ name }) => name === "pages.img")?.path ?? "";
  const bytes = await readFile(pages);
  bytes[77] = 1;
  await writeFile(pages, bytes);
  await expect(here.archive.publish(sandboxId, 1, { epoch: 1, signal })).rejects.toMatchObject({
    code: "storage_failed",
  });
  expect(await store.stat(manifestKey(sandboxId, 1))).toBeUndefined();
});

test("only the server can read the scratch directory, which is emptied at the start", async () => {
  const dir = join(await makeDirectory(), "transfers");
  const open = async () =>
    CheckpointArchive.open({ store: await makeStore(), engine: new FakeEngine(dir), scratchDir: dir, log });
  await open();
  await writeFile(join(dir, "left"), "half a layer");
  await open();
  expect(await readdir(dir)).toEqual([]);
  expect((await stat(dir)).mode & 0o777).toBe(0o700);
});
