import { randomInt } from "node:crypto";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import { collectGarbage, type CollectOptions } from "../../src/collection/collect-garbage.ts";
import { retireManifest } from "../../src/collection/retired-manifests.ts";
import { CollectionWorld, graceMs, type Action } from "../support/collection-world.ts";
import { MemoryObjectStore } from "../support/memory-object-store.ts";

/**
 * The test's name contains the seed. If it is given again, the same plans are tried, and a failing plan is made as
 * small as possible.
 */
const givenSeed = process.env["ATOLL_TEST_SEED"];
const seed = Number(givenSeed ?? randomInt(2 ** 31));
const runs = Number(process.env["ATOLL_TEST_RUNS"] ?? thorough(12, 300));

const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("begin" as const),
      line: fc.nat(2),
      from: fc.nat(20),
      share: fc.nat(3),
      // The clock advances by up to 30 at a time: a manifest that is due is published before the grace is over.
      tookMs: fc.nat(graceMs - 35),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("retire" as const), keepLast: fc.integer({ min: 1, max: 2 }) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("abandon" as const), from: fc.nat(20) }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 30 }) }) },
);

test(
  `whatever others do at the same time, nothing that a manifest needs is ever collected (seed ${seed})`,
  { timeout: 300_000 },
  async () => {
    const total = { published: 0, shared: 0, removed: 0, retired: 0, deaths: 0 };
    const property = fc.asyncProperty(
      fc.array(action, { minLength: 50, maxLength: 300, size: "max" }),
      fc.array(fc.nat(4), { minLength: 1 }),
      async (actions, patience) => {
        const world = new CollectionWorld(actions);
        for (let round = 0; world.hasActions; round += 1) {
          await world.go();
          await world.collect(patience[round % patience.length] ?? 0);
        }
        // In the end everything is removed that no manifest needs.
        for (let round = 0; round < 4; round += 1) {
          await world.go();
          await world.collect(Number.POSITIVE_INFINITY);
        }
        const needed = new Set((await world.manifests()).flatMap(({ needs }) => needs));
        expect(await world.parts()).toEqual([...needed].toSorted((one, two) => (one < two ? -1 : 1)));
        for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += world.seen[key];
      },
    );
    await fc.assert(property, { seed, numRuns: runs, endOnFailure: givenSeed === undefined });
    // Runs in which too little happens prove nothing.
    expect(Object.entries(total).filter(([, count]) => count < 5)).toEqual([]);
  },
);

describe("a collection", () => {
  const options = (nowMs: number): CollectOptions => ({
    prefixes: ["data/"],
    isManifest: (key) => key.endsWith("/manifest.json"),
    isPart: (key) => !key.endsWith("/manifest.json") && !key.includes("foreign"),
    readNeeds: (_key, data) => JSON.parse(data.toString()) as string[],
    retiredPrefix: "collection/retired/",
    condemnedKey: "collection/condemned.json",
    nowMs,
    graceMs,
  });
  const bytes = (content: unknown) => Buffer.from(JSON.stringify(content));

  test("removes an unneeded object at the second pass, and not before the grace is over", async () => {
    const store = new MemoryObjectStore();
    await store.put("data/orphan", bytes(1));
    await store.put("data/part", bytes(1));
    await store.put("data/1/manifest.json", bytes(["data/part"]));
    expect(await collectGarbage(store, options(1_000))).toEqual([]);
    expect(await collectGarbage(store, options(1_000 + graceMs - 1))).toEqual([]);
    expect(await collectGarbage(store, options(1_000 + graceMs))).toEqual(["data/orphan"]);
    expect(await store.stat("data/part")).toBeDefined();
  });

  test("ignores objects that are not parts, whatever their names, and notes that are not its own", async () => {
    const store = new MemoryObjectStore();
    const foreign = ["collection/retired/foreign", "data/1/foreign", "data/foreign"];
    for (const key of foreign) await store.put(key, Buffer.from("not JSON"));
    await store.put("data/orphan", bytes(1));
    // A collector that took them for its own has noted these keys.
    const noted = { version: 1, condemned: { "data/foreign": 1, "data/1/foreign": 1 } };
    await store.put("collection/condemned.json", bytes(noted));
    for (let look = 0; look < 3; look += 1) await collectGarbage(store, options(1_000 + look * graceMs));
    const left: string[] = [];
    for await (const { key } of store.list("")) left.push(key);
    expect(left).toEqual(["collection/condemned.json", ...foreign]);
    expect((await store.get("collection/condemned.json"))?.data.toString()).not.toContain("foreign");
  });

  test("keeps an object that was written again since the last pass", async () => {
    const store = new MemoryObjectStore();
    await store.put("data/orphan", bytes(1));
    await collectGarbage(store, options(1_000));
    const racing = Object.assign(Object.create(store) as MemoryObjectStore, {
      place: store.place,
      async get(key: string) {
        return store.get(key);
      },
      list: (prefix: string) => store.list(prefix),
      put: (...input: Parameters<MemoryObjectStore["put"]>) => store.put(...input),
      async remove(...input: Parameters<MemoryObjectStore["remove"]>) {
        await store.put("data/orphan", bytes(2));
        return store.remove(...input);
      },
    });
    expect(await collectGarbage(racing, options(1_000 + graceMs))).toEqual([]);
    expect((await store.get("data/orphan"))?.data.toString()).toBe("2");
  });

  test("removes nothing when a manifest cannot be read", async () => {
    const store = new MemoryObjectStore();
    await store.put("data/orphan", bytes(1));
    await collectGarbage(store, options(1_000));
    await store.put("data/1/manifest.json", Buffer.from("{ torn"));
    await expect(collectGarbage(store, options(5_000))).rejects.toThrow(SyntaxError);
    expect(await store.stat("data/orphan")).toBeDefined();
  });

  test("keeps everything below the prefixes that a manifest may need, and removes the rest", async () => {
    const store = new MemoryObjectStore();
    for (const key of ["data/1/part", "data/2/part", "data/shared/part"]) await store.put(key, bytes(1));
    await store.put("data/1/manifest.json", Buffer.from("{ torn"));
    const careful = (nowMs: number): CollectOptions => ({
      ...options(nowMs),
      readNeeds: () => ({ below: ["data/1/", "data/shared/"] }),
    });
    await collectGarbage(store, careful(1_000));
    expect(await collectGarbage(store, careful(1_000 + graceMs))).toEqual(["data/2/part"]);
  });

  test("notes no more keys than fit in a small object, and the others later", async () => {
    const store = new MemoryObjectStore();
    const name = "n".repeat(190);
    const keys = Array.from({ length: 3_000 }, (_, index) => `data/${name}/${name}/${name}/${name}/${index}`);
    for (const key of keys) await store.put(key, Buffer.alloc(0));
    let removed = 0;
    for (let look = 0; look < 4; look += 1) {
      removed += (await collectGarbage(store, options(1_000 + look * graceMs))).length;
    }
    expect(removed).toBe(keys.length);
  });

  test("starts the grace again after a clock that was ahead", async () => {
    const store = new MemoryObjectStore();
    await store.put("data/orphan", bytes(1));
    await collectGarbage(store, options(1_000_000));
    await collectGarbage(store, options(1_000));
    expect(await collectGarbage(store, options(1_000 + graceMs))).toEqual(["data/orphan"]);
  });

  test("keeps what a retired manifest needed until the grace is over", async () => {
    const store = new MemoryObjectStore();
    await store.put("data/part", bytes(1));
    const manifest = { key: "data/1/manifest.json", needs: ["data/part"] };
    const { version } = await store.put(manifest.key, bytes(manifest.needs));
    await retireManifest(store, { ...manifest, version }, { retiredPrefix: "collection/retired/", nowMs: 1_000 });
    expect(await store.stat(manifest.key)).toBeUndefined();
    for (const nowMs of [1_000, 1_000 + graceMs - 1]) expect(await collectGarbage(store, options(nowMs))).toEqual([]);
    expect(await collectGarbage(store, options(1_000 + graceMs))).toEqual([]);
    expect(await collectGarbage(store, options(1_000 + 2 * graceMs))).toEqual(["data/part"]);
    const left: string[] = [];
    for await (const { key } of store.list("")) left.push(key);
    expect(left).toEqual(["collection/condemned.json"]);
  });
});
