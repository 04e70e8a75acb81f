import { createHash, randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxId, SnapshotName } from "@atoll/protocol";
import { FileObjectStore, maxSmallObjectBytes, type ObjectStore } from "@atoll/storage";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SnapshotStore } from "../../src/snapshots/snapshot-store.ts";
import { openTestLibrary, testUser } from "../support/test-library.ts";

const day = 24 * 3_600_000;
let dir: string;
let store: ObjectStore;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-snapshot-store-"));
  store = await FileObjectStore.open(join(dir, "store"));
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

async function keys(): Promise<string[]> {
  const all: string[] = [];
  for await (const { key } of store.list("")) all.push(key);
  return all;
}

/** Runs collections with a clock that advances by more than a day each time. */
async function look(times: number): Promise<void> {
  for (let n = 0; n < times; n += 1) await new SnapshotStore(store).collect({ nowMs: 1_000 + n * (day + 1) });
}

async function take(name: string): Promise<void> {
  const library = await openTestLibrary(dir, store);
  await library.take(SandboxId.parse("s".repeat(20)), SnapshotName.parse(name), testUser);
  await library.close();
}

test("objects of other programs below the same names stay, and archives without a manifest are removed", async () => {
  await take("tools");
  const ours = await keys();
  const foreign = [
    "snapshot-notes/retired/readme",
    "snapshots/db.dump",
    "snapshots/2026/db.dump",
    "snapshots/2026/manifest.json",
    "snapshots/2026/01/manifest.json",
    "snapshots/tools/notes.txt",
    "snapshots/tools/files-old",
    "snapshots/@me/tools/files-old",
    `snapshots/@Me/tools/files-${randomUUID()}`,
    `snapshots/@me/tools/sub/files-${randomUUID()}`,
    `snapshots/me/tools/files-${randomUUID()}`,
    `snapshots/tools/sub/files-${randomUUID()}`,
    `snapshots/tools/files-${randomUUID()}.gz`,
    `snapshots/Tools/files-${randomUUID()}`,
  ];
  for (const key of foreign) await store.put(key, Buffer.from("of others"));
  const left = [
    `snapshots/@me/tools/files-${randomUUID()}`,
    `snapshots/tools/files-${randomUUID()}`,
    `snapshots/gone/files-${randomUUID()}`,
  ];
  for (const key of left) await store.put(key, Buffer.from("left by a server that died"));
  await look(3);
  expect(await keys()).toEqual([...ours, ...foreign, "snapshot-notes/condemned.json"].toSorted());
});

test("an unreadable manifest keeps what is below it, and other archives are removed", async () => {
  const kept = ["snapshots/odd/manifest.json", `snapshots/odd/files-${randomUUID()}`];
  for (const key of kept) await store.put(key, Buffer.from("{"));
  await store.put(`snapshots/gone/files-${randomUUID()}`, Buffer.from("left"));
  await look(3);
  expect(await keys()).toEqual(["snapshot-notes/condemned.json", ...kept].toSorted());
});

test("a foreign object that is too large for a manifest stops neither lists nor collections", async () => {
  await take("tools");
  const path = join(dir, "large");
  const bytes = Buffer.alloc(maxSmallObjectBytes + 1);
  await writeFile(path, bytes);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  await store.upload("snapshots/large/manifest.json", path, { sizeBytes: bytes.length, sha256 });
  await look(3);
  const names: string[] = [];
  for await (const { name } of new SnapshotStore(store).list({})) names.push(name);
  expect(names).toEqual(["tools"]);
});
