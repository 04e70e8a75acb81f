import { randomBytes, randomUUID } from "node:crypto";
import type { ObjectStore } from "@atoll/storage";
import { describe, expect, onTestFinished, test } from "vitest";
import { CheckpointCollector } from "../../packages/server/src/persistence/checkpoint-collector.ts";
import { StoreSweeper } from "../../packages/server/src/persistence/store-sweeper.ts";
import { SnapshotStore } from "../../packages/server/src/snapshots/snapshot-store.ts";
import { createLog } from "../../packages/server/src/telemetry/log.ts";
import { newTombstone } from "../../packages/storage/src/s3/s3-envelope.ts";
import { collect } from "../../packages/storage/test/support/contract/use-place.ts";
import { openTestGcs } from "../support/object-servers/test-gcs.ts";
import { openTestS3 } from "../support/object-servers/test-s3.ts";

const day = 24 * 3_600_000;
const log = createLog("silent");
const id = "a".repeat(20);
const partName = `${"0".repeat(64)}.br.${"0".repeat(64)}.00000000`;
const text = (content: string) => Buffer.from(content);

/** Objects of other programs, whose names resemble ours but are no valid keys, with the sizes of special objects. */
const foreign: Readonly<Record<string, Buffer>> = {
  _SUCCESS: Buffer.alloc(0),
  "checkpoints/": Buffer.alloc(0),
  "checkpoints/_SUCCESS": Buffer.alloc(0),
  "checkpoints/epoch-10.pt": randomBytes(1_000),
  "checkpoints/epoch 10 (best).pt": randomBytes(1_000),
  "checkpoints//double": randomBytes(1_000),
  "checkpoints/../up": randomBytes(1_000),
  [`checkpoints/${id}/1/notes~`]: randomBytes(1_000),
  [`checkpoints/${"long".repeat(60)}`]: randomBytes(1_000),
  "layers/0.weight": randomBytes(1_000),
  [`layers/conv2d/${partName}`]: randomBytes(1_000),
  "snapshots/db.dump": randomBytes(1_000),
  "snapshots/Größe.dump": randomBytes(1_000),
  "snapshots/2026/manifest.json": text("{}"),
  "snapshots/2026/01/manifest.json": text('{"files": ["db.dump"]}'),
  eight: text("12345678"),
  fifteen: text("123456789012345"),
  "a word of 15 ch": text("123456789012345"),
  "~parts/readme": text("about parts"),
  "~parts/some/0": text("about parts"),
};
const foreignUploads = ["checkpoints/epoch-11.pt", "checkpoints/epoch 11.pt", "data/big.tar", "snapshots/db.dump"];

const ours = {
  parts: [
    `checkpoints/${id}/1/memory/checkpoint.img/${partName}`,
    `checkpoints/${id}/1/owner/${partName}`,
    `layers/${id}-1/${partName}`,
    `snapshots/tools/files-${randomUUID()}`,
  ],
  uploads: [`layers/${id}-2/${partName}`, `snapshots/tools/files-${randomUUID()}`, `probe/${randomUUID()}/complete`],
};
const notes = ["collection/checkpoints/condemned.json", "snapshot-notes/condemned.json"];

/**
 * Runs three collections, each more than a day after the one before by the collector's clock. The store is opened so
 * that its sweep takes everything for old.
 */
async function collectThrice(store: ObjectStore): Promise<void> {
  let nowMs = Date.now();
  const collector = new CheckpointCollector({
    store,
    policy: { keepLast: 1 },
    statusOf: async () => undefined,
    log,
    nowMs: () => nowMs,
  });
  const sweeper = new StoreSweeper({ stores: [store], log });
  for (let look = 0; look < 3; look += 1) {
    await collector.collect();
    await sweeper.sweep();
    await new SnapshotStore(store).collect({ nowMs });
    nowMs += day + 1;
  }
  await Promise.all([collector.close(), sweeper.close()]);
}

const inOrder = (names: readonly string[]): string[] =>
  names.toSorted((one, two) => Buffer.compare(Buffer.from(one), Buffer.from(two)));

describe("in a bucket that others use, foreign objects stay and our leftovers are removed", () => {
  test.for([
    { like: "S3 as documented", behaviour: {}, tombstones: [] },
    {
      like: "S3 as radosgw implements it",
      behaviour: { ifMatch: "bare", completeConditions: "ignored", deleteConditions: "ignored" } as const,
      tombstones: [...ours.parts, "sandboxes/gone"],
    },
  ])("$like", async ({ behaviour, tombstones }) => {
    const { open, bucket, close } = await openTestS3(behaviour);
    onTestFinished(close);
    const store = open({ sweepAfterMs: -60_000 });
    for (const [name, data] of Object.entries(foreign)) bucket.put(name, data, {});
    for (const key of [...foreignUploads, ...ours.uploads]) bucket.createUpload(key, {});
    for (const key of ours.parts) await store.put(key, text("left by a server that died"));
    bucket.put("sandboxes/gone", newTombstone(), {});
    await collectThrice(store);
    expect(bucket.keys()).toEqual(inOrder([...Object.keys(foreign), ...notes, ...tombstones]));
    for (const [name, data] of Object.entries(foreign)) expect(bucket.objects.get(name)?.data.equals(data)).toBe(true);
    expect(inOrder([...bucket.uploads.values()].map(({ key }) => key))).toEqual(inOrder(foreignUploads));
  });

  test("Google Cloud Storage", async () => {
    const { open, bucket, close } = await openTestGcs();
    onTestFinished(close);
    const store = open({ sweepAfterMs: -60_000 });
    const nothing = new URLSearchParams();
    for (const [name, data] of Object.entries(foreign)) bucket.insert(name, data, {}, nothing);
    const removed = { metadata: { removed: "yes" } };
    bucket.insert("data/removed", Buffer.alloc(0), removed, nothing);
    bucket.insert("data/removed-too", text("but kept"), { metadata: { removed: "yes", write: randomUUID() } }, nothing);
    const theirs = inOrder(bucket.names());
    for (const key of ours.parts) await store.put(key, text("left by a server that died"));
    bucket.insert(`~parts/${randomUUID()}/0`, text("left"), {}, nothing);
    bucket.insert("sandboxes/gone", Buffer.alloc(0), { metadata: { removed: "yes", write: randomUUID() } }, nothing);
    await collectThrice(store);
    expect(bucket.names()).toEqual(inOrder([...theirs, ...notes]));
  });
});

test("a list contains only names that can be objects of a store", async () => {
  const s3 = await openTestS3();
  onTestFinished(s3.close);
  const gcs = await openTestGcs();
  onTestFinished(gcs.close);
  for (const [name, data] of Object.entries(foreign)) {
    s3.bucket.put(name, data, {});
    gcs.bucket.insert(name, data, {}, new URLSearchParams());
  }
  const keysOf = async (store: ObjectStore) => (await collect(store.list("checkpoints/"))).map(({ key }) => key);
  expect(await keysOf(s3.open())).toEqual(["checkpoints/epoch-10.pt"]);
  // In Google Cloud Storage an object of a store may be empty.
  expect(await keysOf(gcs.open())).toEqual(["checkpoints/_SUCCESS", "checkpoints/epoch-10.pt"]);
});

describe("a store in an S3 bucket that others use", () => {
  test("ends no upload without a prefix of its own, except those of its probe", async () => {
    const { open, bucket, close } = await openTestS3();
    onTestFinished(close);
    for (const key of ["checkpoints/epoch-11.pt", ...ours.uploads]) bucket.createUpload(key, {});
    expect(await open({ sweepAfterMs: -60_000 }).sweep()).toBe(1);
    expect([...bucket.uploads.values()].map(({ key }) => key)).toEqual([
      "checkpoints/epoch-11.pt",
      ...ours.uploads.slice(0, 2),
    ]);
  });

  test("continues a sweep after objects that it may not read", async () => {
    const { open, bucket, server, close } = await openTestS3();
    onTestFinished(close);
    bucket.put("a/theirs", text("123456789012345"), {});
    bucket.put("b/gone", newTombstone(), {});
    const store = open({ sweepAfterMs: -60_000 });
    await store.probe();
    server.faults = ({ operation, key }) =>
      operation === "GetObject" && key === "a/theirs" ? { do: "refuse", status: 403, code: "AccessDenied" } : undefined;
    expect(await store.sweep()).toBe(1);
    expect(bucket.keys()).toEqual(["a/theirs"]);
  });

  test("replaces the mark of a removed object, also an old one, and no other short object", async () => {
    const { open, bucket, close } = await openTestS3();
    onTestFinished(close);
    const store = open();
    bucket.put("gone", newTombstone(), {});
    bucket.put("gone-long-ago", Buffer.from("7f45a1b2c3d4e5f6", "hex"), {});
    const theirs = { empty: "", short: "{}", word: "_SUCCESS_", eight: '{"a": 1}', long: "longer than any seal" };
    for (const [key, content] of Object.entries(theirs)) bucket.put(key, text(content), {});
    for (const key of ["gone", "gone-long-ago"]) await store.put(key, text("new"), { if: "absent" });
    for (const [key, content] of Object.entries(theirs)) {
      await expect(store.put(key, text("new"), { if: "absent" })).rejects.toMatchObject({ code: "conflict" });
      expect(bucket.objects.get(key)?.data.toString()).toBe(content);
    }
  });
});

/** The prefixes of two Atolls in one bucket; `undefined` means no prefix. */
const neighbours: [one: string | undefined, other: string | undefined][] = [
  ["a", "ab"],
  ["ab", "a"],
  ["a", "a/b"],
  ["a/b", "a"],
  [undefined, "a"],
  ["a", undefined],
  [undefined, "checkpoints"],
  [undefined, "layers"],
  [undefined, "snapshots"],
];

test.for(neighbours)("an Atoll with the prefix %j removes nothing of one with the prefix %j", async ([one, other]) => {
  const s3 = await openTestS3();
  onTestFinished(s3.close);
  const gcs = await openTestGcs();
  onTestFinished(gcs.close);
  const below = (prefix: string | undefined) => (prefix === undefined ? {} : { prefix });
  const at = (prefix: string | undefined, key: string) => (prefix === undefined ? key : `${prefix}/${key}`);
  for (const key of ours.uploads) for (const of of [one, other]) s3.bucket.createUpload(at(of, key), {});
  const piece = `~parts/${randomUUID()}/0`;
  for (const of of [one, other]) gcs.bucket.insert(at(of, piece), text("on its way"), {}, new URLSearchParams());
  for (const { open } of [s3, gcs]) {
    for (const of of [one, other]) {
      const store = open(below(of));
      for (const key of ours.parts) await store.put(key, text("about to be published"));
    }
    await collectThrice(open({ ...below(one), sweepAfterMs: -60_000 }));
  }
  const left = inOrder([...ours.parts.map((key) => at(other, key)), ...notes.map((key) => at(one, key))]);
  expect(s3.bucket.keys()).toEqual(left);
  expect(gcs.bucket.names()).toEqual(inOrder([...left, at(other, piece)]));
  expect(inOrder([...s3.bucket.uploads.values()].map(({ key }) => key))).toEqual(
    inOrder(ours.uploads.map((key) => at(other, key))),
  );
});
