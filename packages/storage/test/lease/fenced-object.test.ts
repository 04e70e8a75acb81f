import { describe, expect, test } from "vitest";
import { z } from "zod";
import { FencedObject, type Fence } from "../../src/index.ts";
import { LeaseLab, leaseKey, type LabServer } from "../support/lease/lab.ts";

const key = "sandboxes/one/metadata.json";
const schema = z.strictObject({ n: z.int() });

const at = ({ store, clock }: LabServer) => ({ store, clock, callMs: 200, key, schema });

/** The fence of an owner that never notices the loss of its lease. */
const fence = (epoch: number): Fence => ({
  epoch,
  signal: new AbortController().signal,
  assertCurrent: () => undefined,
});

async function stored(lab: LeaseLab): Promise<unknown> {
  const found = await lab.store.get(key);
  return found === undefined ? undefined : JSON.parse(found.data.toString());
}

/** An object that an owner of epoch 1 has written, in a lab. */
async function written(): Promise<{ lab: LeaseLab; former: LabServer; object: FencedObject<{ n: number }> }> {
  const lab = new LeaseLab();
  const former = lab.server("a");
  const object = await lab.of(FencedObject.claim(at(former), fence(1)));
  await lab.of(object.write({ n: 1 }));
  return { lab, former, object };
}

describe("an object that only the owner of a lease writes", () => {
  test("carries the epoch of its writer, and can be read without a lease", async () => {
    const { lab } = await written();
    expect(await stored(lab)).toMatchObject({ epoch: 1, content: { n: 1 } });
    expect(await lab.of(FencedObject.read(at(lab.server("z"))))).toEqual({ epoch: 1, content: { n: 1 } });
  });

  test("does not exist until it is written", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    expect(await lab.of(FencedObject.read(at(server)))).toBeUndefined();
    expect((await lab.of(FencedObject.claim(at(server), fence(1)))).content).toBeUndefined();
    expect(await stored(lab)).toBeUndefined();
  });

  test("a claim puts the new epoch on it and changes nothing else", async () => {
    const { lab } = await written();
    const claimed = await lab.of(FencedObject.claim(at(lab.server("b")), fence(2)));
    expect(claimed.content).toEqual({ n: 1 });
    expect(await stored(lab)).toMatchObject({ epoch: 2, content: { n: 1 } });
  });

  test("a write that was on its way during the claim does not come after it", async () => {
    const { lab, former, object } = await written();
    former.fates.push({ requestMs: 1000 });
    const late = object.write({ n: 666 });
    await lab.of(FencedObject.claim(at(lab.server("b")), fence(2)));
    expect(await lab.errorOf(late)).toMatchObject({ code: "lease_lost", details: { reason: "stolen", epoch: 2 } });
    expect(await stored(lab)).toMatchObject({ epoch: 2, content: { n: 1 } });
  });

  test("a claim takes over a write that came before it", async () => {
    const { lab, former, object } = await written();
    const next = lab.server("b");
    former.fates.push({ requestMs: 10 });
    next.fates.push({}, { requestMs: 50 });
    const late = object.write({ n: 2 });
    const claimed = await lab.of(FencedObject.claim(at(next), fence(2)));
    await lab.of(late);
    expect(claimed.content).toEqual({ n: 2 });
    expect(await stored(lab)).toMatchObject({ epoch: 2, content: { n: 2 } });
  });

  test("a former owner cannot claim it back", async () => {
    const { lab, former } = await written();
    await lab.of(FencedObject.claim(at(lab.server("b")), fence(2)));
    expect(await lab.errorOf(FencedObject.claim(at(former), fence(1)))).toMatchObject({ code: "lease_lost" });
  });

  test.for(["answer_lost", "reset"] as const)(
    "a claim and a write that end as %s are found to have happened",
    async (kind) => {
      const { lab } = await written();
      const next = lab.server("b");
      next.fates.push({}, { kind });
      const object = await lab.of(FencedObject.claim(at(next), fence(2)));
      next.fates.push({ kind });
      await lab.of(object.write({ n: 2 }));
      await lab.of(object.write({ n: 3 }));
      expect(await stored(lab)).toMatchObject({ epoch: 2, content: { n: 3 } });
    },
  );

  test("writes happen in the order of their calls", async () => {
    const { lab, former, object } = await written();
    former.fates.push({ requestMs: 100 }, { kind: "refused" }, {}, { requestMs: 50 });
    await lab.of(Promise.all([object.write({ n: 2 }), object.write({ n: 3 }), object.write({ n: 4 })]));
    expect(await stored(lab)).toMatchObject({ content: { n: 4 } });
  });

  test("an update works on the result of the write before it, also when it is retried", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    const pair = z.strictObject({ one: z.int(), two: z.int() });
    const object = await lab.of(FencedObject.claim({ ...at(server), schema: pair }, fence(1)));
    await lab.of(object.write({ one: 0, two: 0 }));
    const set = (change: Partial<z.infer<typeof pair>>) =>
      object.update((before = { one: 0, two: 0 }) => ({ ...before, ...change }));
    server.fates.push({ requestMs: 100 }, { kind: "answer_lost" }, {}, { kind: "refused" });
    await lab.of(Promise.all([set({ one: 1 }), set({ two: 2 }), set({ one: 3 })]));
    expect(await stored(lab)).toMatchObject({ content: { one: 3, two: 2 } });
    expect(object.content).toEqual({ one: 3, two: 2 });
  });

  test("a write that was given up and arrives later does not stop the next one", async () => {
    const { lab, former, object } = await written();
    former.usual = { kind: "refused" };
    former.fates.push({ kind: "refused", againMs: 1 });
    expect(await lab.errorOf(object.write({ n: 2 }))).toMatchObject({ code: "unavailable" });
    former.usual = {};
    await lab.of(object.write({ n: 3 }));
    expect(await stored(lab)).toMatchObject({ epoch: 1, content: { n: 3 } });
  });

  test("a removed object is not created again", async () => {
    const { lab, object } = await written();
    await lab.store.remove(key);
    expect(await lab.errorOf(object.write({ n: 2 }))).toMatchObject({ code: "not_found" });
    expect(await stored(lab)).toBeUndefined();
  });

  test("an object that a former owner created is not overwritten without a claim", async () => {
    const lab = new LeaseLab();
    const [former, next] = [lab.server("a"), lab.server("b")];
    const object = await lab.of(FencedObject.claim(at(next), fence(2)));
    await lab.of((await lab.of(FencedObject.claim(at(former), fence(1)))).write({ n: 1 }));
    expect(await lab.errorOf(object.write({ n: 2 }))).toMatchObject({ code: "conflict" });
    expect(await stored(lab)).toMatchObject({ epoch: 1, content: { n: 1 } });
  });

  test("nothing is sent once the lease is lost", async () => {
    const lab = new LeaseLab();
    const server = lab.server("a");
    const lease = await lab.of(server.leases.acquire(leaseKey));
    const object = await lab.of(FencedObject.claim(at(server), lease));
    await lab.of(lease.release());
    const { calls } = server;
    expect(await lab.errorOf(object.write({ n: 1 }))).toMatchObject({ code: "lease_lost" });
    expect(server.calls).toBe(calls);
  });

  test("a caller that aborts does not wait for the answer", async () => {
    const { lab, former, object } = await written();
    former.fates.push({ kind: "request_lost" });
    const controller = new AbortController();
    const reason = new Error("left");
    const writing = object.write({ n: 2 }, { signal: controller.signal });
    await lab.timeline.advance(10);
    controller.abort(reason);
    expect(await lab.errorOf(writing)).toBe(reason);
  });

  test.for(["{", '{"epoch":0,"write":"w","content":{"n":1}}', '{"epoch":1,"write":"w","content":{"n":"one"}}'])(
    "%s is refused and not replaced",
    async (text) => {
      const lab = new LeaseLab();
      await lab.store.put(key, Buffer.from(text));
      const server = lab.server("a");
      expect(await lab.errorOf(FencedObject.claim(at(server), fence(9)))).toMatchObject({ code: "storage_failed" });
      expect((await lab.store.get(key))?.data.toString()).toBe(text);
    },
  );
});
