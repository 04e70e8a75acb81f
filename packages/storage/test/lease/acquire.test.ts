import { describe, expect, test } from "vitest";
import { Leases } from "../../src/index.ts";
import { LeaseLab, leaseKey } from "../support/lease/lab.ts";
import { MemoryObjectStore } from "../support/memory-object-store.ts";

const a = { id: "a", url: "http://a" };

describe("a free lease", () => {
  test("of ten that race for it exactly one gets it, and the others learn which one", async () => {
    const lab = new LeaseLab();
    const servers = Array.from({ length: 10 }, (_, index) => lab.server(`s${index}`));
    const outcomes = await lab.of(Promise.allSettled(servers.map(({ leases }) => leases.acquire(leaseKey))));
    const winners = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
    expect(winners).toHaveLength(1);
    expect(winners[0]).toMatchObject({ epoch: 1, origin: "created", state: "held", isCurrent: true });
    const owner = (await lab.document())?.owner;
    const refusals = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
    for (const refusal of refusals) {
      expect(refusal).toMatchObject({ code: "in_use", details: { owner: { id: owner?.id }, waiter: null, epoch: 1 } });
    }
  });

  test("an owner whose creation got no answer knows that it has the lease", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    server.fates.push({}, { kind: "answer_lost" });
    const lease = await lab.of(server.leases.acquire(leaseKey));
    expect(lease).toMatchObject({ epoch: 1, isCurrent: true });
    expect(await lab.document()).toMatchObject({ epoch: 1, owner: a });
  });

  test("a creation without an answer is valid from when it was sent", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    server.fates.push({}, { kind: "answer_lost" }, {});
    server.usual = { kind: "request_lost" };
    const lease = await lab.of(server.leases.acquire(leaseKey));
    // The lease is valid for 700 ms; the call was given up after 200.
    expect(lease.remainingMs).toBeGreaterThan(400);
    expect(lease.remainingMs).toBeLessThan(500);
  });

  test("an acquisition whose answer comes after it has expired is repeated", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    server.fates.push({}, { kind: "answer_lost" });
    const asked = server.leases.waitForHandover(leaseKey);
    await lab.timeline.advance(100);
    server.stop();
    await lab.timeline.advance(900);
    server.wake();
    expect(await lab.of(asked)).toMatchObject({ epoch: 2, isCurrent: true });
  });

  test("a caller that aborts while the answer is outstanding leaves nothing behind", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    server.fates.push({}, { kind: "answer_lost" });
    const controller = new AbortController();
    const asked = server.leases.acquire(leaseKey, { signal: controller.signal });
    await lab.timeline.advance(50);
    expect(await lab.document()).toMatchObject({ owner: a });
    const reason = new Error("no longer wanted");
    controller.abort(reason);
    expect(await lab.errorOf(asked)).toBe(reason);
    expect(await lab.document()).toMatchObject({ epoch: 1, owner: null });
  });

  test("a store that never answers causes an error in bounded time", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    server.usual = { kind: "request_lost" };
    expect(await lab.errorOf(server.leases.acquire(leaseKey))).toMatchObject({ code: "unavailable" });
  });
});

describe("a released lease", () => {
  test("its document stays, and each owner has the next epoch, also the same one again", async () => {
    const lab = new LeaseLab();
    const [one, two] = [lab.server("a"), lab.server("b")];
    for (const [index, { leases }] of [one, two, two, one].entries()) {
      const lease = await lab.of(leases.acquire(leaseKey));
      expect(lease).toMatchObject({ epoch: index + 1, origin: index === 0 ? "created" : "released" });
      await lab.of(lease.release());
      expect(await lab.document()).toMatchObject({ epoch: index + 1, owner: null });
    }
  });

  test("the next epoch is larger than one known from elsewhere, even if the document is gone", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    expect(await lab.of(server.leases.acquire(leaseKey, { epochAbove: 41 }))).toMatchObject({ epoch: 42 });
  });
});

describe("a lease whose owner does not renew it", () => {
  test("a server that has seen that for the whole time takes it, and no server earlier", async () => {
    const lab = new LeaseLab();
    const [dead, watcher, newcomer] = [lab.server("a"), lab.server("b"), lab.server("c")];
    await lab.of(dead.leases.acquire(leaseKey));
    dead.stop();
    await lab.errorOf(watcher.leases.acquire(leaseKey));
    await lab.timeline.advance(1000);
    expect(await lab.errorOf(watcher.leases.acquire(leaseKey))).toMatchObject({ code: "in_use" });
    await lab.timeline.advance(50);
    expect(await lab.errorOf(newcomer.leases.acquire(leaseKey))).toMatchObject({ code: "in_use" });
    expect(await lab.of(watcher.leases.acquire(leaseKey))).toMatchObject({ epoch: 2, origin: "expired" });
  });

  test("a renewal starts the time again", async () => {
    const lab = new LeaseLab();
    const [owner, watcher] = [lab.server("a"), lab.server("b")];
    await lab.of(owner.leases.acquire(leaseKey));
    await lab.errorOf(watcher.leases.acquire(leaseKey));
    await lab.timeline.advance(5000);
    expect(await lab.errorOf(watcher.leases.acquire(leaseKey))).toMatchObject({
      code: "in_use",
      details: { owner: a },
    });
  });

  test("a look counts as an observation", async () => {
    const lab = new LeaseLab();
    const [dead, watcher] = [lab.server("a"), lab.server("b")];
    await lab.of(dead.leases.acquire(leaseKey));
    dead.stop();
    expect(await lab.of(watcher.leases.look(leaseKey))).toEqual({ epoch: 1, owner: a, waiter: undefined });
    await lab.timeline.advance(1050);
    expect(await lab.of(watcher.leases.acquire(leaseKey))).toMatchObject({ epoch: 2 });
  });
});

describe("the lease of a process that is known to be dead", () => {
  const isPredecessor = (owner: { id: string }): boolean => owner.id === "a";

  test("is taken at once by the next one of the same server, and the waiter stays", async () => {
    const lab = new LeaseLab();
    const dead = lab.server("a");
    await lab.of(dead.leases.acquire(leaseKey));
    dead.stop();
    const waiting = lab.server("b").leases.waitForHandover(leaseKey);
    await lab.timeline.advance(100);
    const next = lab.server("a", { isPredecessor });
    const requests: string[] = [];
    const onReleaseRequested = ({ id }: { id: string }): void => void requests.push(id);
    const lease = await lab.of(next.leases.acquire(leaseKey, { onReleaseRequested }));
    expect(lease).toMatchObject({ epoch: 2, origin: "reclaimed", waiter: { id: "b" } });
    expect(requests).toEqual(["b"]);
    await lab.of(lease.release());
    expect(await lab.of(waiting)).toMatchObject({ epoch: 3 });
  });

  test("is waited for when it was held under another lock: it may be alive, on a copy of the machine", async () => {
    const lab = new LeaseLab();
    const elsewhere = lab.server("a", { isPredecessor, lock: "lock1" });
    const held = await lab.of(elsewhere.leases.acquire(leaseKey));
    const here = lab.server("a", { isPredecessor, lock: "lock2" });
    expect(await lab.errorOf(here.leases.acquire(leaseKey))).toMatchObject({ code: "in_use" });
    expect(held.isCurrent).toBe(true);
    elsewhere.stop();
    await lab.timeline.advance(1050);
    expect(await lab.of(here.leases.acquire(leaseKey))).toMatchObject({ epoch: 2, origin: "expired" });
    here.stop();
    const next = lab.server("a", { isPredecessor, lock: "lock2" });
    expect(await lab.of(next.leases.acquire(leaseKey))).toMatchObject({ epoch: 3, origin: "reclaimed" });
  });

  test("a lease that this very process holds is not taken over", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a", { isPredecessor });
    const lease = await lab.of(server.leases.acquire(leaseKey));
    expect(await lab.errorOf(server.leases.acquire(leaseKey))).toMatchObject({ code: "in_use" });
    expect(lease.isCurrent).toBe(true);
  });
});

const forAYear = { id: "a", url: "", session: "abcdefgh", renewal: 1, ttlMs: 31_536_000_000 };

test.for([
  ["no JSON", "{"],
  ["of a later version", JSON.stringify({ version: 2, epoch: 1, owner: null, waiter: null, write: "abcdefgh" })],
  ["valid for a year", JSON.stringify({ version: 1, epoch: 1, owner: forAYear, waiter: null, write: "abcdefgh" })],
  ["of epoch 0", JSON.stringify({ version: 1, epoch: 0, owner: null, waiter: null, write: "abcdefgh" })],
])("a document that is %s is not taken over", async ([, text = ""]) => {
  const lab = new LeaseLab();
  await lab.store.put(leaseKey, Buffer.from(text));
  const { leases } = lab.server("a");
  expect(await lab.errorOf(leases.acquire(leaseKey))).toMatchObject({ code: "unsupported" });
  expect(await lab.errorOf(leases.waitForHandover(leaseKey))).toMatchObject({ code: "unsupported" });
  expect((await lab.store.get(leaseKey))?.data.toString()).toBe(text);
});

test("a store that ignores conditions is refused", async () => {
  const store = new MemoryObjectStore();
  const put = store.put.bind(store);
  store.put = (key, data) => put(key, data);
  const self = { id: "a", url: "" };
  await expect(Leases.open({ store, self })).rejects.toMatchObject({ code: "unsupported" });
  await expect(Leases.open({ store: new MemoryObjectStore(), self })).resolves.toBeInstanceOf(Leases);
});
