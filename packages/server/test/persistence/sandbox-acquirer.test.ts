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
  /** Background work is dropped if this is not given. */
  inBackground: SandboxAcquirerOptions["inBackground"];
}

/** Returns a server that has the sandbox, running, in its data directory. */
function acquirerOf(
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
  // The parts are those that an acquisition of a running sandbox uses.
  return { acquirer: new SandboxAcquirer(parts as unknown as SandboxAcquirerOptions), owned };
}

test("a sandbox that may still run here, because its launcher does not answer, is not released", async () => {
  const before = await SandboxHandle.createPersistent(storesOf("a"), metadataOf(id), {});
  before.abandon();
  let isDeaf = true;
  const { acquirer, owned } = acquirerOf("a", {
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

test("a sandbox whose lease is lost again before it is ready is acquired once more without a request", async () => {
  const before = await SandboxHandle.createPersistent(storesOf("a"), metadataOf(id), {});
  before.abandon();
  const epochs: number[] = [];
  let settled: Promise<void> | undefined;
  const { acquirer, owned } = acquirerOf("a", {
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
