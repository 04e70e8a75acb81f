import { rm } from "node:fs/promises";
import { FencedObject, FileObjectStore, Leases, type HandoverProgress, type ObjectStore } from "@atoll/storage";
import { describe, expect, onTestFinished, test } from "vitest";
import { contractFaults } from "../support/object-servers/faults.ts";
import { openTestGcs } from "../support/object-servers/test-gcs.ts";
import { openTestS3 } from "../support/object-servers/test-s3.ts";
import { makeDataDir } from "../support/test-root.ts";

interface TestStore {
  /** Opens another client of the same store. */
  open: () => Promise<ObjectStore>;
  /** Makes the store carry out the next calls without a response. */
  loseAnswers?: (times: number) => void;
}

async function filePlace(): Promise<TestStore> {
  const directory = await makeDataDir();
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return { open: () => FileObjectStore.open(directory) };
}

async function s3Place(): Promise<TestStore> {
  const testStore = await openTestS3({});
  onTestFinished(() => testStore.close());
  return {
    open: async () => testStore.open({ prefix: "here" }),
    loseAnswers: (times) => (testStore.server.faults = contractFaults({ kind: "lost_answer", times })),
  };
}

async function gcsPlace(): Promise<TestStore> {
  const testStore = await openTestGcs();
  onTestFinished(() => testStore.close());
  return {
    open: async () => testStore.open({ prefix: "here" }),
    loseAnswers: (times) => (testStore.server.faults = contractFaults({ kind: "lost_answer", times })),
  };
}

const key = "sandboxes/one/lease.json";
/** Short intervals keep the test quick; a long time to live keeps a busy machine from losing a lease. */
const timing = { ttlMs: 30_000, watchMs: 20, pollMs: 20 };

async function server({ open }: TestStore, id: string): Promise<{ leases: Leases; store: ObjectStore }> {
  const store = await open();
  onTestFinished(() => store.close());
  return { store, leases: await Leases.open({ store, self: { id, url: `http://${id}` }, timing }) };
}

describe.for([
  { name: "file", openTestStore: filePlace },
  { name: "s3", openTestStore: s3Place },
  { name: "gcs", openTestStore: gcsPlace },
])("leases in a $name store", ({ openTestStore }) => {
  test("are acquired by exactly one of ten servers that race, and exactly one of the others waits", async () => {
    const testStore = await openTestStore();
    const servers = await Promise.all(Array.from({ length: 10 }, (_, index) => server(testStore, `s${index}`)));
    const first = await Promise.allSettled(servers.map(({ leases }) => leases.acquire(key)));
    const winners = first.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
    expect(winners.map(({ epoch }) => epoch)).toEqual([1]);
    const losers = servers.filter((_, index) => first[index]?.status === "rejected");
    const refusals: unknown[] = [];
    const waiting = losers.map(({ leases }) => leases.waitForHandover(key));
    for (const one of waiting) one.catch((error: unknown) => refusals.push(error));
    const second = Promise.allSettled(waiting);
    await expect.poll(() => refusals.length).toBe(8);
    for (const refusal of refusals) expect(refusal).toMatchObject({ code: "in_use", details: { epoch: 1 } });
    expect(winners[0]?.isCurrent).toBe(true);
    await winners[0]?.release();
    const outcomes = await second;
    const heirs = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
    expect(heirs.map(({ epoch }) => epoch)).toEqual([2]);
    await heirs[0]?.release();
  });

  test("move from one server to the other with the data written under them", async () => {
    const testStore = await openTestStore();
    const [one, two] = [await server(testStore, "a"), await server(testStore, "b")];
    const at = (store: ObjectStore) => ({ store, key: "sandboxes/one/metadata.json", schema: { parse: String } });
    const lease = await one.leases.acquire(key, {
      onReleaseRequested: () => void metadata.write("saved").then(() => lease.release()),
    });
    const metadata = await FencedObject.claim(at(one.store), lease);
    await metadata.write("running");
    const progress: HandoverProgress["phase"][] = [];
    const next = await two.leases.waitForHandover(key, { onProgress: ({ phase }) => progress.push(phase) });
    expect(next).toMatchObject({ epoch: 2, origin: "released" });
    expect((await FencedObject.claim(at(two.store), next)).content).toBe("saved");
    expect(progress).toEqual(["waiting", "acquired"]);
    await expect(metadata.write("late")).rejects.toMatchObject({ code: "lease_lost" });
    expect(await FencedObject.read(at(one.store))).toEqual({ epoch: 2, content: "saved" });
    await next.release();
  });
});

describe.for([
  { name: "s3", openTestStore: s3Place },
  { name: "gcs", openTestStore: gcsPlace },
])("leases in a $name store whose answers are lost", ({ openTestStore }) => {
  test("are acquired and released", async () => {
    const testStore = await openTestStore();
    const { leases } = await server(testStore, "a");
    testStore.loseAnswers?.(2);
    const lease = await leases.acquire(key);
    expect(lease.epoch).toBe(1);
    testStore.loseAnswers?.(2);
    await lease.release();
    expect(await leases.look(key)).toEqual({ epoch: 1, owner: undefined, waiter: undefined });
  });
});
