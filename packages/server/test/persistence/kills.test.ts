import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxError, SandboxId } from "@atoll/protocol";
import { FileObjectStore, Leases, type ObjectStore } from "@atoll/storage";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { KillSignals } from "../../src/persistence/kill-signals.ts";
import { Kills } from "../../src/persistence/kills.ts";
import { OwnedLeases } from "../../src/persistence/owned-leases.ts";
import { SandboxHandle, type SandboxStores } from "../../src/persistence/sandbox-handle.ts";
import { metadataOf } from "./sample-metadata.ts";
import { watchStore } from "./watch-store.ts";

const id = SandboxId.parse("k".repeat(20));
const reason = { kind: "asked", message: "a client asked" } as const;
let dir: string;
let store: ObjectStore;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-kills-"));
  store = await FileObjectStore.open(dir);
});
afterEach(async () => {
  await store.close();
  await rm(dir, { recursive: true, force: true });
});

/** A server without a copy of the sandbox, unless `kill` finds something. */
function serverOf(server: string, through = store, kill = async (): Promise<boolean> => false) {
  const self = { id: server, url: `test://${server}` };
  const sandboxStores: SandboxStores = {
    metadataStore: through,
    checkpointStore: through,
    leases: new Leases({ store: through, self }),
  };
  const owned = new OwnedLeases();
  const signals = new KillSignals();
  const emitted: unknown[] = [];
  const kills = new Kills({
    self: () => self,
    notifyServer: () => undefined,
    archive: undefined,
    engine: { kill },
    registry: { get: () => undefined },
    forget: () => undefined,
    emit: (event) => void emitted.push(event),
    log: pino({ enabled: false }),
    owned,
    kills: signals,
    acquirer: { attachToKill: () => SandboxHandle.attachPersistent(sandboxStores, id, { patienceMs: 0 }) },
    metadataCache: { forget: () => undefined },
  });
  return { sandboxStores, owned, signals, kills, emitted };
}

test("a kill whose write to the store fails releases the lease, and can be repeated on any server", async () => {
  const first = await SandboxHandle.createPersistent(serverOf("a").sandboxStores, metadataOf(id), {});
  await first.release();
  let claims = 0;
  const broken = watchStore(store, {
    before: ({ name, key }) => {
      if (name !== "put" || !key.endsWith("metadata.json")) return;
      claims += 1;
      // The claim is written, but the mark is not.
      if (claims > 1) throw new Error("the store is full");
    },
  });
  await expect(serverOf("b", broken).kills.kill(id, reason)).rejects.toThrow("the store is full");
  expect(claims).toBeGreaterThan(1);
  expect(await serverOf("c").kills.kill(id, reason)).toBe(true);
  expect((await SandboxHandle.read(serverOf("a").sandboxStores, id))?.isKilled).toBe(true);
});

test("a kill of a sandbox whose transfer does not end kills the sandbox first, and the transfer with it", async () => {
  let letGo: () => void = () => undefined;
  const moved = new Promise<void>((resolve) => (letGo = resolve));
  const a = serverOf("a", store, async () => {
    letGo();
    return true;
  });
  a.owned.add(await SandboxHandle.createPersistent(a.sandboxStores, metadataOf(id), {}));
  const moving = a.owned.inTurn(id, () => moved);
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  const killing = a.kills.kill(id, reason);
  await vi.advanceTimersByTimeAsync(60_000);
  vi.useRealTimers();
  await moving;
  expect(await killing).toBe(true);
  expect((await SandboxHandle.read(a.sandboxStores, id))?.isKilled).toBe(true);
  expect(a.emitted).toEqual([]);
});

test("a failed kill leaves the lease of a sandbox that this server has", async () => {
  const a = serverOf("a");
  const broken = watchStore(store, {
    before: ({ name, key }) => {
      if (name === "put" && key.endsWith("metadata.json") && isFull) throw new Error("the store is full");
    },
  });
  let isFull = false;
  const { leases } = serverOf("a", broken).sandboxStores;
  const sandboxStores = { ...a.sandboxStores, metadataStore: broken, leases };
  a.owned.add(await SandboxHandle.createPersistent(sandboxStores, metadataOf(id), {}));
  isFull = true;
  await expect(a.kills.kill(id, reason)).rejects.toThrow("the store is full");
  expect(a.owned.has(id)).toBe(true);
  isFull = false;
  expect(await a.kills.kill(id, reason)).toBe(true);
  expect(a.owned.has(id)).toBe(false);
});

test.for(["has its lease", "lost its lease"])(
  "on a full disk a kill frees the space for its mark, by a server that %s",
  async (how) => {
    const a = serverOf("a");
    const handle = await SandboxHandle.createPersistent(a.sandboxStores, metadataOf(id), {});
    await handle.release();
    let isHere = true;
    const full = watchStore(store, {
      before: ({ name }) => {
        if (name === "put" && isHere && isFull) throw new SandboxError("no_space", "Cannot write: the disk is full");
      },
    });
    let isFull = false;
    const { kills, owned, sandboxStores, emitted } = serverOf("a", full, async () => {
      const wasHere = isHere;
      isHere = false;
      return wasHere;
    });
    if (how === "has its lease") owned.add(await SandboxHandle.attachPersistent(sandboxStores, id, { patienceMs: 0 }));
    isFull = true;
    expect(await kills.kill(id, reason)).toBe(true);
    expect((await SandboxHandle.read(a.sandboxStores, id))?.isKilled).toBe(true);
    // The engine emitted this event, because it had the sandbox.
    expect(emitted).toEqual([]);
  },
);

test("a kill ends the transfer in the queue, whose caller gets the reason", async () => {
  const { sandboxStores, owned, signals, kills } = serverOf("a");
  owned.add(await SandboxHandle.createPersistent(sandboxStores, metadataOf(id), {}));
  const transfer = owned.inTurn(id, () =>
    signals.unlessKilled(
      id,
      (killed) =>
        new Promise((_, reject) => {
          killed.addEventListener("abort", () => reject(new Error("the connection was closed")));
        }),
    ),
  );
  const next = owned.inTurn(id, () => signals.unlessKilled(id, async () => "moved"));
  const emitted = Promise.allSettled([transfer, next]);
  expect(await kills.kill(id, reason)).toBe(true);
  const ended = { status: "rejected", reason: { code: "sandbox_ended" } };
  expect(await emitted).toMatchObject([ended, ended]);
  // Another sandbox of this id never exists, but the signals must not keep an entry for every kill.
  expect(await signals.unlessKilled(id, async () => "moved")).toBe("moved");
});
