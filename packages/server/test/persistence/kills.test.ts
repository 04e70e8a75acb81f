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

/** A server that has nothing of the sandbox, unless `kill` finds something. */
function serverOf(server: string, through = store, kill = async (): Promise<boolean> => false) {
  const self = { id: server, url: `test://${server}` };
  const sandboxStores: SandboxStores = {
    metadataStore: through,
    checkpointStore: through,
    leases: new Leases({ store: through, self }),
  };
  const owned = new OwnedLeases();
  const signals = new KillSignals();
  const told: unknown[] = [];
  const kills = new Kills({
    self: () => self,
    notifyServer: () => undefined,
    archive: undefined,
    engine: { kill },
    registry: { get: () => undefined },
    forget: () => undefined,
    emit: (event) => void told.push(event),
    log: pino({ enabled: false }),
    owned,
    kills: signals,
    acquirer: { attachToKill: () => SandboxHandle.attachPersistent(sandboxStores, id, { patienceMs: 0 }) },
    metadataCache: { forget: () => undefined },
  });
  return { sandboxStores, owned, signals, kills, told };
}

test("a kill that the store does not take gives the lease back, and can be asked for anywhere", async () => {
  const first = await SandboxHandle.createPersistent(serverOf("a").sandboxStores, metadataOf(id), {});
  await first.release();
  let claims = 0;
  const broken = watchStore(store, {
    before: ({ name, key }) => {
      if (name !== "put" || !key.endsWith("metadata.json")) return;
      claims += 1;
      // The claim is written, the mark is not.
      if (claims > 1) throw new Error("the store is full");
    },
  });
  await expect(serverOf("b", broken).kills.kill(id, reason)).rejects.toThrow("the store is full");
  expect(claims).toBeGreaterThan(1);
  expect(await serverOf("c").kills.kill(id, reason)).toBe(true);
  expect((await SandboxHandle.read(serverOf("a").sandboxStores, id))?.isKilled).toBe(true);
});

test("a kill of a sandbox whose move does not let go of it ends the sandbox first, and the move with it", async () => {
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
  expect(a.told).toEqual([]);
});

test("a kill that fails leaves a sandbox that this server has its own", async () => {
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
  "on a full disk a sandbox makes room for the mark of its own end, by a server that %s",
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
    const { kills, owned, sandboxStores, told } = serverOf("a", full, async () => {
      const wasHere = isHere;
      isHere = false;
      return wasHere;
    });
    if (how === "has its lease") owned.add(await SandboxHandle.attachPersistent(sandboxStores, id, { patienceMs: 0 }));
    isFull = true;
    expect(await kills.kill(id, reason)).toBe(true);
    expect((await SandboxHandle.read(a.sandboxStores, id))?.isKilled).toBe(true);
    // By the engine, who had it.
    expect(told).toEqual([]);
  },
);

test("a kill ends the transfer that has the turn, whose caller is told why", async () => {
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
  const told = Promise.allSettled([transfer, next]);
  expect(await kills.kill(id, reason)).toBe(true);
  const ended = { status: "rejected", reason: { code: "sandbox_ended" } };
  expect(await told).toMatchObject([ended, ended]);
  // Another sandbox of this id does not exist; but what is left over must not be a memory of every kill.
  expect(await signals.unlessKilled(id, async () => "moved")).toBe("moved");
});
