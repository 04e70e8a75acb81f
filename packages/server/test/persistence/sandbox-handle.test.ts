import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxId } from "@atoll/protocol";
import { FileObjectStore, Leases, type ObjectStore } from "@atoll/storage";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SandboxHandle, type SandboxStores } from "../../src/persistence/sandbox-handle.ts";
import { metadataOf } from "./sample-metadata.ts";
import { watchStore } from "./watch-store.ts";

const id = SandboxId.parse("a".repeat(20));
let dir: string;
let store: ObjectStore;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-handle-"));
  store = await FileObjectStore.open(dir);
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

function storesOf(server: string): SandboxStores {
  const leases = new Leases({ store, self: { id: server, url: `http://${server}` } });
  return { metadataStore: store, checkpointStore: store, leases };
}

async function keys(): Promise<string[]> {
  const found: string[] = [];
  for await (const { key } of store.list("")) found.push(key);
  return found;
}

/** Returns the same store, in which a write that matches waits until it is released. */
function holdPut(fits: (text: string) => boolean): { slow: ObjectStore; atPut: Promise<void>; release: () => void } {
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => void (release = resolve));
  let arrive = (): void => undefined;
  const atPut = new Promise<void>((resolve) => void (arrive = resolve));
  const slow = new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name !== "put") return value.bind(target);
      return async (...[key, data, options]: Parameters<ObjectStore["put"]>) => {
        if (fits(Buffer.from(data).toString())) {
          arrive();
          await released;
        }
        return target.put(key, data, options);
      };
    },
  });
  return { slow, atPut, release: () => release() };
}

test("createEphemeral stores nothing, and its handle is always current", async () => {
  const handle = SandboxHandle.createEphemeral(id);
  expect([handle.isPersistent, handle.isCurrent]).toEqual([false, true]);
  expect(await keys()).toEqual([]);
});

test("createPersistent writes metadata under a lease, and attachPersistent reads them after the release", async () => {
  const handle = await SandboxHandle.createPersistent(storesOf("a"), metadataOf(id), {});
  expect([handle.isPersistent, handle.isCurrent, handle.epoch]).toEqual([true, true, 1]);
  expect(await keys()).toEqual([`sandboxes/${id}/lease.json`, `sandboxes/${id}/metadata.json`]);
  await handle.write({ state: "paused", checkpoint: { n: 1, createdAtMs: 5 } });
  await expect(SandboxHandle.attachPersistent(storesOf("b"), id, { patienceMs: 0 })).rejects.toMatchObject({
    code: "in_use",
    details: { owner: { id: "a" } },
  });
  await handle.release();
  const next = await SandboxHandle.attachPersistent(storesOf("b"), id, { patienceMs: 0 });
  expect(next.epoch).toBe(2);
  expect(next.metadata).toMatchObject({ state: "paused", checkpoint: { n: 1 }, facts: { labels: { job: "1" } } });
  await expect(handle.write({ state: "running" })).rejects.toMatchObject({ code: "lease_lost" });
  await next.release();
});

test("createPersistent that cannot write leaves neither a lease nor metadata", async () => {
  const failing = new Proxy(store, {
    get: (target, name) => {
      if (name === "put") return () => Promise.reject(new Error("the disk is full"));
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const leases = new Leases({ store, self: { id: "a", url: "" } });
  const sandboxStores = { metadataStore: failing, checkpointStore: store, leases };
  await expect(SandboxHandle.createPersistent(sandboxStores, metadataOf(id), {})).rejects.toThrow("the disk is full");
  expect(await keys()).toEqual([]);
});

test("two concurrent changes are both kept", async () => {
  const { slow, atPut, release } = holdPut((text) => text.includes('"paused"') && !text.includes('"job": "2"'));
  const leases = new Leases({ store, self: { id: "a", url: "" } });
  const sandboxStores = { metadataStore: slow, checkpointStore: store, leases };
  const handle = await SandboxHandle.createPersistent(sandboxStores, metadataOf(id), {});
  const pausing = handle.write({ state: "paused" });
  await atPut;
  const labelling = handle.write({ facts: { ...handle.metadata.facts, labels: { job: "2" } } });
  release();
  await Promise.all([pausing, labelling]);
  const expected = { state: "paused", facts: { labels: { job: "2" } } };
  expect(handle.metadata).toMatchObject(expected);
  expect(await SandboxHandle.read(sandboxStores, id)).toMatchObject(expected);
  await handle.release();
});

test("createPersistent whose write succeeded without a reply leaves neither", async () => {
  let isWritten = false;
  const unanswering = watchStore(store, {
    before: ({ name }) => {
      if (name === "get" && isWritten) throw new Error("no answer");
    },
    after: ({ name }) => {
      isWritten ||= name === "put";
      if (name === "put") throw new Error("no answer");
    },
  });
  const leases = new Leases({ store, self: { id: "a", url: "" } });
  const sandboxStores = { metadataStore: unanswering, checkpointStore: store, leases };
  await expect(SandboxHandle.createPersistent(sandboxStores, metadataOf(id), {})).rejects.toThrow("no answer");
  expect(isWritten).toBe(true);
  expect(await keys()).toEqual([]);
});

test("a second createPersistent of the same sandbox is refused, and the first keeps it", async () => {
  const first = await SandboxHandle.createPersistent(storesOf("a"), metadataOf(id), {});
  await expect(SandboxHandle.createPersistent(storesOf("b"), metadataOf(id, "b"), {})).rejects.toMatchObject({
    code: "in_use",
  });
  expect(first.isCurrent).toBe(true);
  await first.release();
});

test("attachPersistent of a sandbox that is not stored, or was killed, is refused and leaves nothing", async () => {
  const absent = SandboxHandle.attachPersistent(storesOf("b"), id, { patienceMs: 0 });
  await expect(absent).rejects.toMatchObject({ code: "not_found" });
  expect(await keys()).toEqual([]);
  const handle = await SandboxHandle.createPersistent(storesOf("a"), metadataOf(id), {});
  await handle.write({ isKilled: true });
  expect(await SandboxHandle.read(storesOf("b"), id)).toMatchObject({ isKilled: true });
  await handle.remove();
  expect(await keys()).toEqual([]);
  await expect(SandboxHandle.attachPersistent(storesOf("b"), id, { patienceMs: 0 })).rejects.toMatchObject({
    code: "not_found",
  });
});

test.for(["metadataStore", "checkpointStore"] as const)(
  "without a %s both are refused, naming the setting",
  async (setting) => {
    const sandboxStores = { ...storesOf("a"), [setting]: undefined };
    const refusal = { code: "unsupported", details: { setting } };
    await expect(SandboxHandle.createPersistent(sandboxStores, metadataOf(id), {})).rejects.toMatchObject(refusal);
    await expect(SandboxHandle.attachPersistent(sandboxStores, id, { patienceMs: 0 })).rejects.toMatchObject(refusal);
    expect(await keys()).toEqual([]);
  },
);

test("a server that waits gets the sandbox from an owner that is asked, with its last metadata", async () => {
  const owner = await SandboxHandle.createPersistent(storesOf("a"), metadataOf(id), {
    onReleaseRequested: () =>
      void owner.write({ state: "moving", checkpoint: { n: 1, createdAtMs: 9 } }).then(() => owner.release()),
  });
  const next = await SandboxHandle.attachPersistent(storesOf("b"), id, { patienceMs: 60_000 });
  expect(next.metadata).toMatchObject({ state: "moving", checkpoint: { n: 1 } });
  await next.release();
});
