import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { leaseTransitions, type Clock, type Lease, type LeaseCallbacks } from "../../src/index.ts";
import { labTiming, LeaseLab, leaseKey, type LabServer } from "../support/lease/lab.ts";

/** Records the callbacks to an owner, in order. */
class CallbackLog implements LeaseCallbacks {
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
  callbacks: CallbackLog;
}

async function hold(): Promise<Held> {
  const lab = new LeaseLab();
  const server = lab.server("a");
  const callbacks = new CallbackLog();
  const lease = await lab.of(server.leases.acquire(leaseKey, callbacks));
  return { lab, server, lease, callbacks };
}

describe("an owner", () => {
  test("keeps its lease for as long as the store answers", async () => {
    const { lab, lease, callbacks } = await hold();
    await lab.timeline.advance(60_000);
    expect(lease).toMatchObject({ isCurrent: true, state: "held", epoch: 1 });
    expect(callbacks).toMatchObject({ log: [], lostInMs: [] });
  });

  test("renews also by a clock whose alarms come slightly early", async () => {
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

  test("stops before its time is over when the store is gone, and is called back once", async () => {
    const { lab, server, lease, callbacks } = await hold();
    server.usual = { kind: "request_lost" };
    const { renewal } = (await lab.document())?.owner ?? {};
    await lab.timeline.advance(labTiming.ttlMs - labTiming.stopMs);
    expect((await lab.document())?.owner?.renewal).toBe(renewal);
    expect(lease).toMatchObject({ isCurrent: false, state: "lost", remainingMs: 0 });
    expect(callbacks.log).toEqual(["lost: expired"]);
    expect(callbacks.lostInMs).toEqual(callbacks.lostInMs.toSorted((one, two) => two - one));
    expect(callbacks.lostInMs.length).toBeGreaterThan(0);
    expect(() => lease.assertCurrent()).toThrow(expect.objectContaining({ code: "lease_lost" }));
    expect(lease.signal.reason).toMatchObject({ code: "lease_lost", details: { reason: "expired", epoch: 1 } });
  });

  test("survives an outage of the store that is shorter than its time", async () => {
    const { lab, server, lease, callbacks } = await hold();
    server.usual = { kind: "refused" };
    await lab.timeline.advance(450);
    server.usual = {};
    await lab.timeline.advance(2000);
    expect(lease.isCurrent).toBe(true);
    expect(callbacks.log).toEqual([]);
    expect(callbacks.lostInMs.length).toBeGreaterThan(1);
  });

  test.for(["answer_lost", "reset"] as const)("recognises its renewal when it ends as %s", async (kind) => {
    const { lab, server, lease, callbacks } = await hold();
    await lab.timeline.until(() => server.calls % 2 === 0, 1000);
    // From now on writes take effect without an answer, and reads work.
    const put = server.store.put.bind(server.store);
    server.store.put = (...args) => {
      server.fates.unshift({ kind });
      return put(...args);
    };
    await lab.timeline.advance(5000);
    expect(lease.isCurrent).toBe(true);
    expect(callbacks.log).toEqual([]);
  });

  test("counts a renewal from when it was sent, however late its answer is", async () => {
    const { lab, server, lease } = await hold();
    server.usual = { answerMs: 190 };
    await lab.timeline.until(() => lease.remainingMs < 480, 2000);
    server.usual = { kind: "request_lost" };
    const before = lab.timeline.nowMs + lease.remainingMs;
    await lab.timeline.advance(195);
    // The renewal that was in flight has been answered; it is valid for 700 ms from when it was sent, 190 ms ago.
    expect(lab.timeline.nowMs + lease.remainingMs).toBeGreaterThan(before);
    expect(lease.remainingMs).toBeLessThanOrEqual(labTiming.ttlMs - labTiming.stopMs - 190);
  });

  test("an owner that was stopped finds its lease lost as soon as it asks, before any timer has run", async () => {
    const { lab, server, lease, callbacks } = await hold();
    server.stop();
    await lab.timeline.advance(1500);
    expect(lease.state).toBe("held");
    expect(() => lease.assertCurrent()).toThrow(expect.objectContaining({ code: "lease_lost" }));
    await lab.timeline.advance(0);
    expect(callbacks.log).toEqual(["lost: expired"]);
    server.wake();
    await lab.timeline.advance(2000);
    expect(callbacks.log).toEqual(["lost: expired"]);
  });

  test("finds out which server has taken its lease", async () => {
    const { lab, lease, callbacks } = await hold();
    const stolen = { ...(await lab.document()), epoch: 2, write: "another1", owner: other };
    await lab.store.put(leaseKey, Buffer.from(JSON.stringify(stolen)));
    await lab.timeline.advance(300);
    expect(callbacks.log).toEqual(["lost: stolen"]);
    expect(lease.signal.reason).toMatchObject({ details: { reason: "stolen", owner: { id: "z" } } });
  });

  test("loses the lease when its document is gone", async () => {
    const { lab, lease, callbacks } = await hold();
    await lab.store.remove(leaseKey);
    await lab.timeline.advance(300);
    expect(callbacks.log).toEqual(["lost: removed"]);
    expect(lease.isCurrent).toBe(false);
    expect(await lab.document()).toBeUndefined();
  });
});

const other = { id: "z", url: "", session: "zzzzzzzz", renewal: 1, ttlMs: 1000 };

describe("giving back", () => {
  test("ends the right to write with the call, not with the answer", async () => {
    const { lab, lease, callbacks } = await hold();
    const given = lease.release();
    expect(() => lease.assertCurrent()).toThrow(expect.objectContaining({ code: "lease_lost" }));
    expect(lease).toMatchObject({ state: "releasing", isCurrent: false });
    expect(lease.signal.aborted).toBe(true);
    await lab.of(given);
    expect(lease.state).toBe("released");
    expect(callbacks.log).toEqual([]);
  });

  test("can be called twice", async () => {
    const { lab, lease } = await hold();
    await lab.of(Promise.all([lease.release(), lease.release()]));
    const document = await lab.document();
    await lab.of(lease.release());
    expect(await lab.document()).toEqual(document);
  });

  test("is seen by others even in the middle of a renewal", async () => {
    const { lab, server, lease } = await hold();
    server.usual = { requestMs: 50 };
    await lab.timeline.until(() => server.calls > 4, 2000);
    await lab.of(lease.release());
    await lab.timeline.advance(500);
    expect(await lab.document()).toMatchObject({ epoch: 1, owner: null });
  });

  test.for(["answer_lost", "reset", "request_lost", "refused"] as const)(
    "takes effect when a call ends as %s",
    async (kind) => {
      const { lab, server, lease } = await hold();
      server.fates.push({ kind });
      await lab.of(lease.release());
      expect(lease.state).toBe("released");
      expect(await lab.document()).toMatchObject({ owner: null });
    },
  );

  test("rejects when the store does not answer, and the lease expires", async () => {
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

describe("leaving the lease to a successor", () => {
  test("nothing is written any more, and the next process of the same server takes it at once", async () => {
    const { lab, server, lease, callbacks } = await hold();
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
    expect(callbacks.log).toEqual([]);
    const next = lab.server("a", { isPredecessor: ({ id }) => id === "a" });
    expect(await lab.of(next.leases.acquire(leaseKey))).toMatchObject({ epoch: 2, origin: "reclaimed" });
  });
});

test("the page has every state of a lease", async () => {
  const page = await readFile(new URL("../../../../docs/leases.md", import.meta.url), "utf8");
  const [, picture = ""] = /The states of a lease at its owner\n\n```\n([\s\S]*?)```/.exec(page) ?? [];
  for (const state of Object.keys(leaseTransitions)) expect(picture).toMatch(new RegExp(`\\b${state}\\b`));
});
