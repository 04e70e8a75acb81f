import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxError, SandboxId } from "@atoll/protocol";
import { FileObjectStore, Leases, type ObjectStore } from "@atoll/storage";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test } from "vitest";
import { KillSignals } from "../../src/persistence/kill-signals.ts";
import { OwnedSandboxes } from "../../src/persistence/owned-sandboxes.ts";
import { SandboxHandle, type HandleHome } from "../../src/persistence/sandbox-handle.ts";
import { Takings, type TakingsOptions } from "../../src/persistence/takings.ts";
import { metadataOf } from "./sample-metadata.ts";

const id = SandboxId.parse("t".repeat(20));
let dir: string;
let store: ObjectStore;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-takings-"));
  store = await FileObjectStore.open(dir);
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

function homeOf(server: string): HandleHome {
  const self = { id: server, url: `http://${server}` };
  const isPredecessor = (owner: { id: string }): boolean => owner.id === server;
  const leases = new Leases({ store, self, lock: `lock-of-${server}`, isPredecessor });
  return { metadataStore: store, checkpointStore: store, leases };
}

/** A server that has the sandbox, running, in its data directory. */
function takingsOf(server: string, allowUntil: () => Promise<void>): { takings: Takings; owned: OwnedSandboxes } {
  const owned = new OwnedSandboxes();
  const sandbox = { id, state: "running" };
  const managed = { sandbox, restoreCommands: async () => undefined, clock: { start: () => undefined } };
  const parts = {
    home: homeOf(server),
    self: () => ({ id: server, url: `http://${server}` }),
    engine: { get: () => ({ allowUntil }) },
    copies: { find: () => sandbox, bring: async () => ({ managed, worth: "live" }) },
    whereabouts: { recall: () => undefined, forget: () => undefined },
    kills: new KillSignals(),
    closing: new AbortController().signal,
    // What is tried again later is not what is looked at here.
    inBackground: () => undefined,
    log: pino({ enabled: false }),
    owned,
  };
  // As much of a server as taking back a sandbox that runs asks for.
  return { takings: new Takings(parts as unknown as TakingsOptions), owned };
}

test("one that may still run here, because its launcher does not answer, is not given to another server", async () => {
  const before = await SandboxHandle.createPersistent(homeOf("a"), metadataOf(id), {});
  before.abandon();
  let isDeaf = true;
  const { takings, owned } = takingsOf("a", async () => {
    if (isDeaf) throw new SandboxError("timed_out", "Cannot set the deadline of a container");
  });
  const { signal } = new AbortController();
  await expect(takings.take(id, signal)).rejects.toMatchObject({ code: "timed_out" });
  expect(owned.has(id)).toBe(false);
  const asked = SandboxHandle.attachPersistent(homeOf("b"), id, { patienceMs: 0 });
  await expect(asked).rejects.toMatchObject({ code: "in_use", details: { owner: { id: "a" } } });

  isDeaf = false;
  await takings.take(id, signal);
  expect(owned.has(id)).toBe(true);
  await owned.find(id).release();
});
