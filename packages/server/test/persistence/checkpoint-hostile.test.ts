import { createHash, randomBytes } from "node:crypto";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import { SandboxId } from "@atoll/protocol";
import { maxSmallObjectBytes, type ObjectStore } from "@atoll/storage";
import { beforeEach, expect, test } from "vitest";
import { manifestKey } from "../../src/persistence/checkpoint-keys.ts";
import type { StoredCheckpoint, StoredPart } from "../../src/persistence/checkpoint-manifest.ts";
import { makeDirectory, makeMachine, makeStore, otherId, recordOf, sandboxId, type Machine } from "./archive-lab.ts";

const { signal } = new AbortController();
const image = "memory/checkpoint.img";
const layer = `layer/${sandboxId}-1`;

let store: ObjectStore;
let there: Machine;
let stored: StoredCheckpoint;

beforeEach(async () => {
  store = await makeStore();
  there = await makeMachine(store);
  const here = await makeMachine(store);
  const layers = [here.engine.layer(`${sandboxId}-1`, Buffer.alloc(40_000, "text"))];
  await here.engine.checkpoint(sandboxId, 1, { layers, owner: randomBytes(100) });
  await here.engine.checkpoint(otherId, 1, { layers: [here.engine.layer(`${otherId}-1`, randomBytes(40_000))] });
  stored = await here.archive.publish(sandboxId, 1, { epoch: 1, signal });
  await here.archive.publish(otherId, 1, { epoch: 1, signal });
});

type Change = (stored: StoredCheckpoint) => unknown;

const partOf = (checkpoint: StoredCheckpoint, name: string): StoredPart => {
  const part = checkpoint.parts.find((each) => each.name === name);
  if (part === undefined) throw new Error(`There is no ${name}`);
  return part;
};
const withPart =
  (name: string, change: (part: StoredPart) => Partial<StoredPart>): Change =>
  (checkpoint) => ({
    ...checkpoint,
    parts: checkpoint.parts.map((part) => (part.name === name ? { ...part, ...change(part) } : part)),
  });
const withManifest =
  (change: Record<string, unknown>): Change =>
  (checkpoint) => ({ ...checkpoint, manifest: { ...checkpoint.manifest, ...change } });

const cases: [string, string, Change][] = [
  ["nothing readable", "manifest.json", () => "not a manifest"],
  ["a later version", "manifest.json", (checkpoint) => ({ ...checkpoint, version: 2 })],
  ["an unknown field", "manifest.json", (checkpoint) => ({ ...checkpoint, more: true })],
  ["another sandbox's id", "manifest.json", (checkpoint) => ({ ...checkpoint, sandboxId: otherId })],
  ["another sandbox's id inside", "manifest.json", withManifest({ sandboxId: otherId })],
  ["another number", "manifest.json", (checkpoint) => ({ ...checkpoint, n: 2 })],
  ["another number inside", "manifest.json", withManifest({ n: 2 })],
  [
    "an image whose name is a path",
    "manifest.json",
    withManifest({ memory: [{ name: "../../x", sizeBytes: 1, sha256: "0".repeat(64) }] }),
  ],
  [
    "a layer whose name is a path",
    "manifest.json",
    withManifest({ layers: [{ id: "../../etc", sizeBytes: 1, sha256: "0".repeat(64) }] }),
  ],
  [
    "thousands of parts",
    "manifest.json",
    (checkpoint) => ({ ...checkpoint, parts: Array.from({ length: 5_000 }, () => checkpoint.parts[0]) }),
  ],
  [
    "a part twice",
    "manifest.json",
    (checkpoint) => ({ ...checkpoint, parts: [...checkpoint.parts, checkpoint.parts[0]] }),
  ],
  [
    "a part of another checkpoint",
    "manifest.json",
    (checkpoint) => ({ ...checkpoint, parts: [...checkpoint.parts, { ...partOf(checkpoint, "owner"), name: "more" }] }),
  ],
  [
    "no word of its image",
    image,
    (checkpoint) => ({ ...checkpoint, parts: checkpoint.parts.filter(({ name }) => name !== image) }),
  ],
  [
    "a key of another part",
    image,
    (checkpoint) => withPart(image, () => ({ key: partOf(checkpoint, layer).key }))(checkpoint),
  ],
  ["a key of another sandbox", image, withPart(image, ({ key }) => ({ key: key.replaceAll(sandboxId, otherId) }))],
  ["a key that leads elsewhere", image, withPart(image, ({ key }) => ({ key: `${key}/../../x` }))],
  ["a negative size", "manifest.json", withPart(image, () => ({ sizeBytes: -1 }))],
  ["a size beyond all numbers", "manifest.json", withPart(image, () => ({ sizeBytes: 1e300 }))],
  ["a size that lies", image, withPart(image, ({ sizeBytes }) => ({ sizeBytes: sizeBytes - 1 }))],
  ["a wrong original size", layer, withPart(layer, () => ({ originalBytes: 39_999 }))],
  ["more stored bytes than original ones", layer, withPart(layer, () => ({ sizeBytes: 40_001 }))],
  ["an encoding that differs from its key", layer, withPart(layer, () => ({ encoding: "plain" }))],
  ["a checksum that differs from its key", layer, withPart(layer, () => ({ sha256: "0".repeat(64) }))],
  ["a wrong size of the compressed bytes", layer, withPart(layer, ({ sizeBytes }) => ({ sizeBytes: sizeBytes + 1 }))],
];

test.for(cases)(
  "a stored manifest with %s is refused by the name of the part, and nothing is imported",
  async ([, part, change]) => {
    const hostile = change(stored);
    await store.put(
      manifestKey(sandboxId, 1),
      Buffer.from(typeof hostile === "string" ? hostile : JSON.stringify(hostile)),
    );
    await expect(there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal })).rejects.toMatchObject({
      code: "unrestorable",
      details: { sandboxId, checkpoint: 1, part },
    });
    expect(there.engine.imported).toEqual([]);
    expect(await readdir(there.scratchDir)).toEqual([]);
  },
);

test("a manifest that is too large is refused, and the other checkpoints of the sandbox are listed", async () => {
  const large = join(await makeDirectory(), "large");
  const bytes = Buffer.alloc(maxSmallObjectBytes + 1);
  await writeFile(large, bytes);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  await store.upload(manifestKey(sandboxId, 2), large, { sizeBytes: bytes.length, sha256 });
  await expect(there.archive.fetch(sandboxId, 2, recordOf(sandboxId), { signal })).rejects.toMatchObject({
    code: "unrestorable",
    details: { part: "manifest.json" },
  });
  expect(await there.archive.list(sandboxId)).toEqual([stored]);
});

test("a part with missing or other bytes is refused by its name", async () => {
  const { key, sizeBytes } = partOf(stored, image);
  await store.put(key, randomBytes(sizeBytes));
  const refusal = { code: "unrestorable", details: { part: image } };
  await expect(there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal })).rejects.toMatchObject(refusal);
  await store.remove(key);
  await expect(there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal })).rejects.toMatchObject(refusal);
  expect(there.engine.imported).toEqual([]);
});

test.for<[string, Buffer]>([
  ["a bomb", brotliCompressSync(Buffer.alloc(50_000_000))],
  ["data that is not compressed", randomBytes(500)],
  ["something else", brotliCompressSync(Buffer.alloc(40_000, "other"))],
])("a compressed part that is %s is refused by its name", async ([, bytes]) => {
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const old = partOf(stored, layer);
  const key = old.key.replace(`.${old.sha256}.`, `.${sha256}.`);
  await store.put(key, bytes);
  const hostile = withPart(layer, () => ({ key, sha256, sizeBytes: bytes.length }))(stored);
  await store.put(manifestKey(sandboxId, 1), Buffer.from(JSON.stringify(hostile)));
  await expect(there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal })).rejects.toMatchObject({
    code: "unrestorable",
    details: { part: layer },
  });
  expect(await readdir(there.scratchDir)).toEqual([]);
});

test("sizes beyond any disk are refused before anything is fetched", async () => {
  const bytes = Number.MAX_SAFE_INTEGER - 1;
  const { key, ...old } = partOf(stored, layer);
  const layers = [{ id: `${sandboxId}-1`, sizeBytes: bytes, sha256: key.split("/")[2]?.slice(0, 64) }];
  const hostile = withPart(layer, () => ({ ...old, key, originalBytes: bytes }))(
    withManifest({ layers })(stored) as StoredCheckpoint,
  );
  await store.put(manifestKey(sandboxId, 1), Buffer.from(JSON.stringify(hostile)));
  await expect(there.archive.fetch(sandboxId, 1, recordOf(sandboxId), { signal })).rejects.toMatchObject({
    code: "no_space",
  });
});

test("objects of other programs beside a checkpoint are not taken for its parts", async () => {
  const here = await makeMachine(store);
  const id = SandboxId.parse("c".repeat(20));
  const memory = { "checkpoint.img": randomBytes(1_000) };
  const manifest = await here.engine.checkpoint(id, 1, {
    layers: [here.engine.layer(`${id}-1`, randomBytes(10))],
    memory,
  });
  const sha256 = manifest.memory[0]?.sha256 ?? "";
  await store.put(`checkpoints/${id}/1/memory/checkpoint.img/${sha256}.plain.${sha256}.00000000`, randomBytes(999));
  await store.put(`checkpoints/${id}/1/memory/checkpoint.img/${sha256}.zip.${sha256}.00000000`, randomBytes(1_000));
  await here.archive.publish(id, 1, { epoch: 1, signal });
  await there.archive.fetch(id, 1, recordOf(id), { signal });
  expect(there.engine.imported).toEqual([manifest]);
});
