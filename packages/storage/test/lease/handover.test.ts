import { describe, expect, test } from "vitest";
import type { HandoverProgress, Lease } from "../../src/index.ts";
import { labTiming, LeaseLab, leaseKey, type LabServer } from "../support/lease/lab.ts";

interface Pair {
  lab: LeaseLab;
  owner: LabServer;
  lease: Lease;
  /** The servers that asked the owner to release the lease. */
  requests: string[];
  waiter: LabServer;
}

async function pair(): Promise<Pair> {
  const lab = new LeaseLab();
  const owner = lab.server("a", { skew: { offsetMs: 5_000_000, rate: 0.99 } });
  const waiter = lab.server("b", { skew: { offsetMs: -7_000_000, rate: 1.01 } });
  const requests: string[] = [];
  const onReleaseRequested = ({ id }: { id: string }): void => void requests.push(id);
  const lease = await lab.of(owner.leases.acquire(leaseKey, { onReleaseRequested }));
  return { lab, owner, lease, requests, waiter };
}

describe("handover", () => {
  test("the owner is asked once and releases the lease, and the waiter gets it with the next epoch", async () => {
    const { lab, lease, requests, waiter } = await pair();
    const progress: HandoverProgress[] = [];
    const onProgress = (step: HandoverProgress): void => void progress.push(step);
    const waiting = waiter.leases.waitForHandover(leaseKey, { onProgress });
    await lab.timeline.advance(3000);
    expect(requests).toEqual(["b"]);
    expect(lease.waiter).toEqual({ id: "b", url: "http://b" });
    expect(lease.isCurrent).toBe(true);
    await lab.of(lease.release());
    const taken = await lab.of(waiting);
    expect(taken).toMatchObject({ epoch: 2, origin: "released", isCurrent: true });
    expect(await lab.document()).toMatchObject({ epoch: 2, owner: { id: "b" }, waiter: null });
    expect(progress).toMatchObject([
      { phase: "waiting", owner: { id: "a", url: "http://a" }, epoch: 1 },
      { phase: "acquired", origin: "released", epoch: 2 },
    ]);
  });

  test("the owner sees that the waiter has left, or has stopped renewing its claim", async () => {
    const { lab, lease, waiter } = await pair();
    const leaving = new AbortController();
    const left = waiter.leases.waitForHandover(leaseKey, { signal: leaving.signal });
    await lab.timeline.advance(300);
    expect(await lab.of(lease.lookForWaiter())).toMatchObject({ id: "b" });
    leaving.abort(new Error("left"));
    expect(await lab.errorOf(left)).toMatchObject({ message: "left" });
    expect(await lab.of(lease.lookForWaiter())).toBeUndefined();

    const silent = lab.server("c");
    silent.leases.waitForHandover(leaseKey).catch(() => undefined);
    await lab.timeline.advance(300);
    expect(lease.waiter).toMatchObject({ id: "c" });
    silent.stop();
    await lab.timeline.advance(labTiming.waiterTtlMs / 2);
    expect(lease.waiter).toMatchObject({ id: "c" });
    await lab.timeline.advance(labTiming.waiterTtlMs);
    expect(await lab.of(lease.lookForWaiter())).toBeUndefined();
    expect(lease.isCurrent).toBe(true);
  });

  test("a free lease is acquired without waiting", async () => {
    const lab = new LeaseLab();
    expect(await lab.of(lab.server("a").leases.waitForHandover(leaseKey))).toMatchObject({
      epoch: 1,
      origin: "created",
    });
  });

  test("a waiter waits for a dead owner exactly as long as it could have been the owner", async () => {
    const { lab, owner, waiter } = await pair();
    owner.stop();
    const startMs = lab.timeline.nowMs;
    const taken = await lab.of(waiter.leases.waitForHandover(leaseKey));
    expect(taken).toMatchObject({ epoch: 2, origin: "expired" });
    const tookMs = lab.timeline.nowMs - startMs;
    expect(tookMs).toBeGreaterThan(labTiming.ttlMs / 0.99);
    expect(tookMs).toBeLessThan(labTiming.ttlMs * 1.1);
  });

  test("a notification makes both look at once", async () => {
    const lab = new LeaseLab();
    const slow = { ...labTiming, watchMs: 100_000, pollMs: 100_000, renewMs: 300 };
    const owner = lab.server("a", { timing: { ...slow, ttlMs: 100_000 } });
    const waiter = lab.server("b", { timing: { ...slow, waiterTtlMs: 300_000 } });
    const requests: string[] = [];
    const onReleaseRequested = ({ id }: { id: string }): void => void requests.push(id);
    const lease = await lab.of(owner.leases.acquire(leaseKey, { onReleaseRequested }));
    const waiting = waiter.leases.waitForHandover(leaseKey);
    await lab.timeline.advance(50);
    expect(requests).toEqual([]);
    owner.leases.notify(leaseKey);
    await lab.timeline.advance(5);
    expect(requests).toEqual(["b"]);
    await lab.of(lease.release());
    waiter.leases.notify(leaseKey);
    expect(await lab.of(waiting, 20)).toMatchObject({ epoch: 2 });
  });

  test("a notification that comes during a look is not lost", async () => {
    const lab = new LeaseLab();
    const owner = lab.server("a", { timing: { ...labTiming, ttlMs: 100_000 } });
    const timing = { ...labTiming, pollMs: 100_000, waiterTtlMs: 300_000 };
    const waiter = lab.server("b", { timing });
    const lease = await lab.of(owner.leases.acquire(leaseKey));
    // The read that still finds an owner is answered only after the release.
    waiter.fates.push({}, {}, { answerMs: 100 });
    const waiting = waiter.leases.waitForHandover(leaseKey);
    await lab.timeline.advance(20);
    await lab.of(lease.release());
    waiter.leases.notify(leaseKey);
    expect(await lab.of(waiting, 200)).toMatchObject({ epoch: 2 });
  });

  test("a waiter continues while the store fails, and reports it", async () => {
    const { lab, lease, waiter } = await pair();
    const phases: string[] = [];
    const waiting = waiter.leases.waitForHandover(leaseKey, { onProgress: ({ phase }) => phases.push(phase) });
    await lab.timeline.advance(200);
    waiter.usual = { kind: "refused" };
    await lab.timeline.advance(500);
    await lab.of(lease.release());
    waiter.usual = {};
    expect(await lab.of(waiting)).toMatchObject({ epoch: 2 });
    expect(phases).toEqual(["waiting", "unreachable", "acquired"]);
  });

  test.for(["answer_lost", "reset", "request_lost"] as const)(
    "registers once although a call ends as %s",
    async (kind) => {
      const { lab, lease, requests, waiter } = await pair();
      waiter.fates.push({}, { kind });
      const waiting = waiter.leases.waitForHandover(leaseKey);
      await lab.timeline.advance(2000);
      expect(requests).toEqual(["b"]);
      await lab.of(lease.release());
      expect(await lab.of(waiting)).toMatchObject({ epoch: 2 });
    },
  );
});

describe("the waiter", () => {
  test("a second one is refused at once, with the owner and the waiter", async () => {
    const { lab, lease, waiter } = await pair();
    const waiting = waiter.leases.waitForHandover(leaseKey);
    await lab.timeline.advance(100);
    const third = lab.server("c");
    expect(await lab.errorOf(third.leases.waitForHandover(leaseKey))).toMatchObject({
      code: "in_use",
      details: { owner: { id: "a" }, waiter: { id: "b", url: "http://b" } },
    });
    await lab.of(lease.release());
    expect(await lab.of(waiting)).toMatchObject({ epoch: 2 });
  });

  test("of many that register at once exactly one waits", async () => {
    const { lab, lease } = await pair();
    const all = Array.from({ length: 6 }, (_, index) => lab.server(`w${index}`).leases.waitForHandover(leaseKey));
    const outcomes = Promise.allSettled(all);
    await lab.timeline.advance(500);
    await lab.of(lease.release());
    const settled = await lab.of(outcomes);
    expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const outcome of settled) {
      if (outcome.status === "rejected") expect(outcome.reason).toMatchObject({ code: "in_use" });
    }
  });

  test("a free lease is kept for it", async () => {
    const { lab, lease, waiter } = await pair();
    const waiting = waiter.leases.waitForHandover(leaseKey);
    await lab.timeline.advance(100);
    waiter.stop();
    await lab.of(lease.release());
    expect(await lab.errorOf(lab.server("c").leases.acquire(leaseKey))).toMatchObject({
      code: "in_use",
      details: { owner: null, waiter: { id: "b" } },
    });
    waiter.wake();
    expect(await lab.of(waiting)).toMatchObject({ epoch: 2 });
  });

  test("a long waiter keeps its place, however often others ask", async () => {
    const { lab, lease, requests, waiter } = await pair();
    const waiting = waiter.leases.waitForHandover(leaseKey);
    await lab.timeline.advance(100);
    const third = lab.server("c");
    for (let attempt = 0; attempt < 5; attempt += 1) {
      expect(await lab.errorOf(third.leases.waitForHandover(leaseKey))).toMatchObject({ code: "in_use" });
      await lab.timeline.advance(400);
    }
    expect(requests).toEqual(["b"]);
    await lab.of(lease.release());
    expect(await lab.of(waiting)).toMatchObject({ epoch: 2 });
  });

  test("a waiter that does not renew its claim in time loses its place", async () => {
    const { lab, waiter } = await pair();
    const waiting = waiter.leases.waitForHandover(leaseKey);
    await lab.timeline.advance(100);
    waiter.stop();
    const third = lab.server("c");
    await lab.errorOf(third.leases.waitForHandover(leaseKey));
    await lab.timeline.advance(650);
    const second = third.leases.waitForHandover(leaseKey);
    await lab.timeline.advance(200);
    expect((await lab.document())?.waiter).toMatchObject({ id: "c" });
    waiter.wake();
    expect(await lab.errorOf(waiting)).toMatchObject({ code: "in_use", details: { waiter: { id: "c" } } });
    expect((await lab.document())?.waiter).toMatchObject({ id: "c" });
    second.catch(() => undefined);
  });

  test("a waiter that leaves makes room for another, and the owner keeps its lease", async () => {
    const { lab, lease, waiter } = await pair();
    const controller = new AbortController();
    const waiting = waiter.leases.waitForHandover(leaseKey, { signal: controller.signal });
    await lab.timeline.advance(300);
    const reason = new Error("the client has left");
    controller.abort(reason);
    expect(await lab.errorOf(waiting)).toBe(reason);
    expect((await lab.document())?.waiter).toBeNull();
    await lab.timeline.advance(300);
    expect(lease).toMatchObject({ isCurrent: true, waiter: undefined });
  });

  test("does not wait longer than its timeout", async () => {
    const { lab, lease, waiter } = await pair();
    expect(await lab.errorOf(waiter.leases.waitForHandover(leaseKey, { timeoutMs: 2000 }))).toMatchObject({
      code: "timed_out",
    });
    expect(await lab.document()).toMatchObject({ owner: { id: "a" }, waiter: null });
    expect(lease.isCurrent).toBe(true);
  });

  test("no call is made if the signal is already aborted", async () => {
    const { lab, waiter } = await pair();
    const reason = new Error("too late");
    const signal = AbortSignal.abort(reason);
    expect(await lab.errorOf(waiter.leases.waitForHandover(leaseKey, { signal }))).toBe(reason);
    expect(waiter.calls).toBe(0);
  });
});
