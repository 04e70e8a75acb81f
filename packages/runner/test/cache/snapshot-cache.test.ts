import { mkdtemp, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SnapshotCache } from "../../src/cache/snapshot-cache.ts";
import { emptyRecord, TaskRecords } from "../../src/cache/task-records.ts";
import type { RunnerSandbox, SnapshotStore } from "../../src/client/sandbox-client.ts";

let directory: string;
const { signal } = new AbortController();

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "atoll-runner-cache-"));
});

afterEach(() => rm(directory, { recursive: true, force: true }));

const name = (digit: number): string => `task-${String(digit).repeat(40)}`;

class FakeStore implements SnapshotStore {
  readonly bytes = new Map<string, number>();

  has(snapshot: string): Promise<boolean> {
    return Promise.resolve(this.bytes.has(snapshot));
  }

  list(): Promise<{ name: string; bytes: number; createdAtMs: number }[]> {
    return Promise.resolve([...this.bytes].map(([at, bytes]) => ({ name: at, bytes, createdAtMs: 1 })));
  }

  remove(snapshot: string): Promise<void> {
    this.bytes.delete(snapshot);
    return Promise.resolve();
  }
}

const sandboxOf = (snapshot: (at: string) => Promise<void>): RunnerSandbox =>
  ({ snapshot }) as unknown as RunnerSandbox;

test("the least recently used snapshots go first, and those of others stay", async () => {
  const store = new FakeStore();
  for (const digit of [1, 2, 3]) store.bytes.set(name(digit), 10);
  for (const other of ["env-production", "mine", "task-1"]) store.bytes.set(other, 1000);
  const cache = new SnapshotCache(store, directory);
  for (const digit of [2, 1, 3]) {
    await cache.has(name(digit), signal);
    const at = new Date(Date.now() - (digit === 2 ? 3_000 : digit === 1 ? 2_000 : 1_000));
    await utimes(join(directory, "snapshots", name(digit)), at, at);
  }
  expect((await cache.list(signal)).map((snapshot) => snapshot.name)).toEqual([name(3), name(1), name(2)]);
  expect((await cache.prune(20, signal)).map((snapshot) => snapshot.name)).toEqual([name(2)]);
  await cache.has(name(1), signal);
  expect((await cache.prune(10, signal)).map((snapshot) => snapshot.name)).toEqual([name(3)]);
  expect([...store.bytes.keys()]).toEqual([name(1), "env-production", "mine", "task-1"]);
});

test("a snapshot that another runner saved at the same moment is used, and other failures are failures", async () => {
  const cache = new SnapshotCache(new FakeStore(), directory);
  const exists = sandboxOf(() => Promise.reject(new SandboxError("already_exists", "it is there")));
  await expect(cache.save(exists, name(1), signal)).resolves.toBeUndefined();
  const full = sandboxOf(() => Promise.reject(new SandboxError("no_space", "the disk is full")));
  await expect(cache.save(full, name(1), signal)).rejects.toThrow("the disk is full");
});

test("a record that cannot be read counts as absent", async () => {
  const records = new TaskRecords(directory);
  expect(await records.read("k")).toEqual(emptyRecord);
  const record = { ...emptyRecord, baseline: { key: "b", attempts: [] } };
  await records.write("k", record);
  expect(await records.read("k")).toEqual(record);
  await records.write("k", { schemaVersion: 2 } as never);
  expect(await records.read("k")).toEqual(emptyRecord);
});
