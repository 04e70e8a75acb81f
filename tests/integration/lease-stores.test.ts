import { rm } from "node:fs/promises";
import { FencedObject, FileObjectStore, Leases, type HandoverProgress, type ObjectStore } from "@atoll/storage";
import { describe, expect, onTestFinished, test } from "vitest";
import { contractFaults } from "../support/object-servers/faults.ts";
import { openTestGcs } from "../support/object-servers/test-gcs.ts";
import { openTestS3 } from "../support/object-servers/test-s3.ts";
import { makeDataDir } from "../support/test-root.ts";

interface Place {
  /** Another client of the same store. */
  open: () => Promise<ObjectStore>;
  /** The next calls take place and are not answered. */
  loseAnswers?: (times: number) => void;
}

async function filePlace(): Promise<Place> {
  const directory = await makeDataDir();
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return { open: () => FileObjectStore.open(directory) };
}

async function s3Place(): Promise<Place> {
  const place = await openTestS3({});
  onTestFinished(() => place.close());
  return {
    open: async () => place.open({ prefix: "here" }),
    loseAnswers: (times) => (place.server.faults = contractFaults({ kind: "lost_answer", times })),
  };
}

async function gcsPlace(): Promise<Place> {
  const place = await openTestGcs();
  onTestFinished(() => place.close());
  return {
    open: async () => place.open({ prefix: "here" }),
    loseAnswers: (times) => (place.server.faults = contractFaults({ kind: "lost_answer", times })),
  };
}

const key = "sandboxes/one/lease.json";
/** Short looks, so that a test is quick; a long time to live, so that a busy machine loses nothing. */
const timing = { ttlMs: 30_000, watchMs: 20, pollMs: 20 };

async function server({ open }: Place, id: string): Promise<{ leases: Leases; store: ObjectStore }> {
  const store = await open();
  onTestFinished(() => store.close());
  return { store, leases: await Leases.open({ store, self: { id, url: `http://${id}` }, timing }) };
}

describe.for([
  { name: "file", openPlace: filePlace },
  { name: "s3", openPlace: s3Place },
  { name: "gcs", openPlace: gcsPlace },
])("leases in a $name store", ({ openPlace }) => {
  test("of ten that race exactly one gets it, and of the rest exactly one waits", async () => {
    const place = await openPlace();
    const servers = await Promise.all(Array.from({ length: 10 }, (_, index) => server(place, `s${index}`)));
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

  test("a sandbox goes from one server to the other with what was written under its lease", async () => {
    const place = await openPlace();
    const [one, two] = [await server(place, "a"), await server(place, "b")];
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
  { name: "s3", openPlace: s3Place },
  { name: "gcs", openPlace: gcsPlace },
])("leases in a $name store whose answers are lost", ({ openPlace }) => {
  test("are acquired and given back all the same", async () => {
    const place = await openPlace();
    const { leases } = await server(place, "a");
    place.loseAnswers?.(2);
    const lease = await leases.acquire(key);
    expect(lease.epoch).toBe(1);
    place.loseAnswers?.(2);
    await lease.release();
    expect(await leases.look(key)).toEqual({ epoch: 1, owner: undefined, waiter: undefined });
  });
});
