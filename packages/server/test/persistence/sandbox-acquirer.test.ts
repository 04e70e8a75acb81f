import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxError, SandboxId } from "@atoll/protocol";
import { FileObjectStore, Leases, type ObjectStore } from "@atoll/storage";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test } from "vitest";
import { KillSignals } from "../../src/persistence/kill-signals.ts";
import { OwnedLeases } from "../../src/persistence/owned-leases.ts";
import { SandboxAcquirer, type SandboxAcquirerOptions } from "../../src/persistence/sandbox-acquirer.ts";
import { SandboxHandle, type SandboxStores } from "../../src/persistence/sandbox-handle.ts";
import { metadataOf } from "./sample-metadata.ts";

const id = SandboxId.parse("t".repeat(20));
let dir: string;
let store: ObjectStore;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-acquirer-"));
  store = await FileObjectStore.open(dir);
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

function storesOf(server: string): SandboxStores {
  const self = { id: server, url: `http://${server}` };
  const isPredecessor = (owner: { id: string }): boolean => owner.id === server;
  const leases = new Leases({ store, self, lock: `lock-of-${server}`, isPredecessor });
  return { metadataStore: store, checkpointStore: store, leases };
}

interface Behaviour {
  allowUntil: () => Promise<void>;
  restoreCommands: (owned: OwnedLeases) => void;
  /** What is tried again later is left out if not given. */
  inBackground: SandboxAcquirerOptions["inBackground"];
}

/** A server that has the sandbox, running, in its data directory. */
function takingsOf(
  server: string,
  { allowUntil = async () => undefined, ...others }: Partial<Behaviour>,
): { acquirer: SandboxAcquirer; owned: OwnedLeases } {
  const owned = new OwnedLeases();
  const sandbox = { id, state: "running" };
  const restoreCommands = async (): Promise<void> => others.restoreCommands?.(owned);
  const managed = { sandbox, restoreCommands, clock: { start: () => undefined } };
  const parts = {
    sandboxStores: storesOf(server),
    self: () => ({ id: server, url: `http://${server}` }),
    engine: { get: () => ({ allowUntil }) },
    copies: {
      find: () => sandbox,
      statusOf: async () => "live",
      ensureCurrent: async () => ({ managed, status: "live" }),
    },
    metadataCache: { recall: () => undefined, forget: () => undefined },
    checkpoints: { recordRollback: async () => undefined, storeLeftBehind: async () => true },
    handovers: { storeLeftBehind: () => undefined },
    kills: new KillSignals(),
    closing: new AbortController().signal,
    inBackground: others.inBackground ?? (() => undefined),
    log: pino({ enabled: false }),
    owned,
  };
  // As much of a server as taking back a sandbox that runs asks for.
  return { acquirer: new SandboxAcquirer(parts as unknown as SandboxAcquirerOptions), owned };
}

test("one that may still run here, because its launcher does not answer, is not given to another server", async () => {
  const before = await SandboxHandle.createPersistent(storesOf("a"), metadataOf(id), {});
  before.abandon();
  let isDeaf = true;
  const { acquirer, owned } = takingsOf("a", {
    allowUntil: async () => {
      if (isDeaf) throw new SandboxError("timed_out", "Cannot set the deadline of a container");
    },
  });
  const { signal } = new AbortController();
  await expect(acquirer.acquire(id, signal)).rejects.toMatchObject({ code: "timed_out" });
  expect(owned.has(id)).toBe(false);
  const asked = SandboxHandle.attachPersistent(storesOf("b"), id, { patienceMs: 0 });
  await expect(asked).rejects.toMatchObject({ code: "in_use", details: { owner: { id: "a" } } });

  isDeaf = false;
  await acquirer.acquire(id, signal);
  expect(owned.has(id)).toBe(true);
  await owned.find(id).release();
});

test("one whose lease is lost again before it has settled in is taken once more, without anybody asking", async () => {
  const before = await SandboxHandle.createPersistent(storesOf("a"), metadataOf(id), {});
  before.abandon();
  const epochs: number[] = [];
  let settled: Promise<void> | undefined;
  const { acquirer, owned } = takingsOf("a", {
    restoreCommands: (mine) => {
      epochs.push(mine.find(id).epoch);
      if (epochs.length === 1) mine.find(id).abandon();
    },
    inBackground: (_what, _id, work) => {
      settled = work(new AbortController().signal);
    },
  });
  acquirer.reconcile(id);
  await settled;
  expect(epochs).toEqual([2, 3]);
  expect(owned.isReady(id)).toBe(true);
  await owned.find(id).release();
});
