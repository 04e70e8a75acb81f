import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { leaseTransitions, type Clock, type Lease, type LeaseCallbacks } from "../../src/index.ts";
import { labTiming, LeaseLab, leaseKey, type LabServer } from "../support/lease/lab.ts";

/** What an owner was told, in order. */
class Told implements LeaseCallbacks {
  readonly log: string[] = [];
  readonly lostInMs: number[] = [];
  onReleaseRequested = ({ id }: { id: string }): void => void this.log.push(`requested by ${id}`);
  onLost = ({ reason }: { reason: string }): void => void this.log.push(`lost: ${reason}`);
  onRenewalFailed = (_error: unknown, lostInMs: number): void => void this.lostInMs.push(lostInMs);
}

interface Held {
  lab: LeaseLab;
  server: LabServer;
  lease: Lease;
  told: Told;
}

async function hold(): Promise<Held> {
  const lab = new LeaseLab();
  const server = lab.server("a");
  const told = new Told();
  const lease = await lab.of(server.leases.acquire(leaseKey, told));
  return { lab, server, lease, told };
}

describe("an owner", () => {
  test("keeps its lease for as long as the store answers", async () => {
    const { lab, lease, told } = await hold();
    await lab.timeline.advance(60_000);
    expect(lease).toMatchObject({ isCurrent: true, state: "held", epoch: 1 });
    expect(told).toMatchObject({ log: [], lostInMs: [] });
  });

  test("renews also by a clock whose alarms come a hair too early", async () => {
    const lab = new LeaseLab();
    const { clock } = lab.server("model");
    const early: Clock = {
      now: () => clock.now(),
      after: (delayMs, callback) => clock.after(delayMs - 1e-6, callback),
    };
    const server = lab.server("a", { clock: early });
    const lease = await lab.of(server.leases.acquire(leaseKey));
    lab.timeline.onMoment = () => {
      if (server.calls > 1_000) throw new Error(`${server.calls} calls in ${lab.timeline.nowMs} ms`);
    };
    await lab.timeline.advance(10_000);
    expect(lease.isCurrent).toBe(true);
  });

  test("stops before its time is over when the store is gone, and is told so once", async () => {
    const { lab, server, lease, told } = await hold();
    server.usual = { kind: "request_lost" };
    const { renewal } = (await lab.document())?.owner ?? {};
    await lab.timeline.advance(labTiming.ttlMs - labTiming.stopMs);
    expect((await lab.document())?.owner?.renewal).toBe(renewal);
    expect(lease).toMatchObject({ isCurrent: false, state: "lost", remainingMs: 0 });
    expect(told.log).toEqual(["lost: expired"]);
    expect(told.lostInMs).toEqual(told.lostInMs.toSorted((one, two) => two - one));
    expect(told.lostInMs.length).toBeGreaterThan(0);
    expect(() => lease.assertCurrent()).toThrow(expect.objectContaining({ code: "lease_lost" }));
    expect(lease.signal.reason).toMatchObject({ code: "lease_lost", details: { reason: "expired", epoch: 1 } });
  });

  test("outlasts a store that is gone for less than its time", async () => {
    const { lab, server, lease, told } = await hold();
    server.usual = { kind: "refused" };
    await lab.timeline.advance(450);
    server.usual = {};
    await lab.timeline.advance(2000);
    expect(lease.isCurrent).toBe(true);
    expect(told.log).toEqual([]);
    expect(told.lostInMs.length).toBeGreaterThan(1);
  });

  test.for(["answer_lost", "reset"] as const)("knows its renewal again when it ends as %s", async (kind) => {
    const { lab, server, lease, told } = await hold();
    await lab.timeline.until(() => server.calls % 2 === 0, 1000);
    // From now on writes take place and say nothing, and reads work.
    const put = server.store.put.bind(server.store);
    server.store.put = (...args) => {
      server.fates.unshift({ kind });
      return put(...args);
    };
    await lab.timeline.advance(5000);
    expect(lease.isCurrent).toBe(true);
    expect(told.log).toEqual([]);
  });

  test("counts a renewal from before it was sent, however late its answer is", async () => {
    const { lab, server, lease } = await hold();
    server.usual = { answerMs: 190 };
    await lab.timeline.until(() => lease.remainingMs < 480, 2000);
    server.usual = { kind: "request_lost" };
    const before = lab.timeline.nowMs + lease.remainingMs;
    await lab.timeline.advance(195);
    // The renewal that was on its way has been answered; it is good for 700 ms from when it was sent, 190 ms ago.
    expect(lab.timeline.nowMs + lease.remainingMs).toBeGreaterThan(before);
    expect(lease.remainingMs).toBeLessThanOrEqual(labTiming.ttlMs - labTiming.stopMs - 190);
  });

  test("who was stopped finds its lease over as soon as it asks, before any timer has run", async () => {
    const { lab, server, lease, told } = await hold();
    server.stop();
    await lab.timeline.advance(1500);
    expect(lease.state).toBe("held");
    expect(() => lease.assertCurrent()).toThrow(expect.objectContaining({ code: "lease_lost" }));
    await lab.timeline.advance(0);
    expect(told.log).toEqual(["lost: expired"]);
    server.wake();
    await lab.timeline.advance(2000);
    expect(told.log).toEqual(["lost: expired"]);
  });

  test("finds out who has taken its lease", async () => {
    const { lab, lease, told } = await hold();
    const stolen = { ...(await lab.document()), epoch: 2, write: "somebody", owner: other };
    await lab.store.put(leaseKey, Buffer.from(JSON.stringify(stolen)));
    await lab.timeline.advance(300);
    expect(told.log).toEqual(["lost: stolen"]);
    expect(lease.signal.reason).toMatchObject({ details: { reason: "stolen", owner: { id: "z" } } });
  });

  test("does not go on when its document is gone", async () => {
    const { lab, lease, told } = await hold();
    await lab.store.remove(leaseKey);
    await lab.timeline.advance(300);
    expect(told.log).toEqual(["lost: removed"]);
    expect(lease.isCurrent).toBe(false);
    expect(await lab.document()).toBeUndefined();
  });
});

const other = { id: "z", url: "", session: "zzzzzzzz", renewal: 1, ttlMs: 1000 };

describe("giving back", () => {
  test("ends the right to write with the call, not with the answer", async () => {
    const { lab, lease, told } = await hold();
    const given = lease.release();
    expect(() => lease.assertCurrent()).toThrow(expect.objectContaining({ code: "lease_lost" }));
    expect(lease).toMatchObject({ state: "releasing", isCurrent: false });
    expect(lease.signal.aborted).toBe(true);
    await lab.of(given);
    expect(lease.state).toBe("released");
    expect(told.log).toEqual([]);
  });

  test("twice is once", async () => {
    const { lab, lease } = await hold();
    await lab.of(Promise.all([lease.release(), lease.release()]));
    const document = await lab.document();
    await lab.of(lease.release());
    expect(await lab.document()).toEqual(document);
  });

  test("in the middle of a renewal is seen by others all the same", async () => {
    const { lab, server, lease } = await hold();
    server.usual = { requestMs: 50 };
    await lab.timeline.until(() => server.calls > 4, 2000);
    await lab.of(lease.release());
    await lab.timeline.advance(500);
    expect(await lab.document()).toMatchObject({ epoch: 1, owner: null });
  });

  test.for(["answer_lost", "reset", "request_lost", "refused"] as const)(
    "gets there when a call ends as %s",
    async (kind) => {
      const { lab, server, lease } = await hold();
      server.fates.push({ kind });
      await lab.of(lease.release());
      expect(lease.state).toBe("released");
      expect(await lab.document()).toMatchObject({ owner: null });
    },
  );

  test("says so when the store cannot be told, and lets the lease run out", async () => {
    const { lab, server, lease } = await hold();
    server.usual = { kind: "request_lost" };
    expect(await lab.errorOf(lease.release())).toMatchObject({ code: "unavailable" });
    expect(lease.state).toBe("lost");
  });

  test("by a holder that has expired does not touch its successor's lease", async () => {
    const { lab, server, lease } = await hold();
    server.stop();
    const next = await lab.of(lab.server("b").leases.waitForHandover(leaseKey));
    server.wake();
    await lab.of(lease.release());
    await lab.timeline.advance(500);
    expect(next.isCurrent).toBe(true);
    expect(await lab.document()).toMatchObject({ epoch: 2, owner: { id: "b" } });
  });

  test("happens at the end of a block", async () => {
    const { lab, lease } = await hold();
    await lab.of(lease[Symbol.asyncDispose]());
    expect(await lab.document()).toMatchObject({ owner: null });
  });
});

describe("leaving it to a successor", () => {
  test("nothing is written any more, and the next process of the same server takes it at once", async () => {
    const { lab, server, lease, told } = await hold();
    lease.abandon();
    lease.abandon();
    expect(lease).toMatchObject({ state: "abandoned", isCurrent: false });
    expect(lease.signal.reason).toMatchObject({ code: "lease_lost", details: { reason: "abandoned" } });
    const { calls } = server;
    const document = await lab.document();
    await lab.of(lease.release());
    await lab.timeline.advance(3000);
    expect(server.calls).toBe(calls);
    expect(await lab.document()).toEqual(document);
    expect(told.log).toEqual([]);
    const next = lab.server("a", { isPredecessor: ({ id }) => id === "a" });
    expect(await lab.of(next.leases.acquire(leaseKey))).toMatchObject({ epoch: 2, origin: "reclaimed" });
  });
});

test("every state of a lease has its place on the page", async () => {
  const page = await readFile(new URL("../../../../docs/leases.md", import.meta.url), "utf8");
  const [, picture = ""] = /The states of a lease at its owner\n\n```\n([\s\S]*?)```/.exec(page) ?? [];
  for (const state of Object.keys(leaseTransitions)) expect(picture).toMatch(new RegExp(`\\b${state}\\b`));
});
