import { randomInt } from "node:crypto";
import { rm } from "node:fs/promises";
import { expect, onTestFinished, test } from "vitest";
import { leaseWorkerTiming, type LeaseFact } from "../support/lease-facts.ts";
import { LeaseProcess } from "../support/lease-process.ts";
import { makeDataDir } from "../support/test-root.ts";

interface Shop {
  facts: LeaseFact[];
  start: (id: string, ...manner: "keep"[]) => LeaseProcess;
}

async function open(): Promise<Shop> {
  const directory = await makeDataDir();
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const facts: LeaseFact[] = [];
  return { facts, start: (id, ...manner) => new LeaseProcess(directory, id, facts, ...manner) };
}

/** Returns all writes in the order of the times at which the workers checked their leases. */
function writesOf(facts: LeaseFact[]): LeaseFact[] {
  return facts.filter(({ step }) => step === "wrote").toSorted((one, two) => one.atMs - two.atMs);
}

/** Checks that no owner writes after a later one has, and that no count is written twice. */
function expectOneOwner(facts: LeaseFact[]): void {
  const writes = writesOf(facts);
  const epochs = writes.map(({ epoch }) => epoch ?? 0);
  const values = writes.map(({ value }) => value ?? 0);
  expect(epochs).toEqual(epochs.toSorted((one, two) => one - two));
  expect(values).toEqual([...new Set(values)].toSorted((one, two) => one - two));
  const owners = new Map(facts.filter(({ step }) => step === "held").map(({ epoch, id }) => [epoch, id]));
  expect(owners.size).toBe(facts.filter(({ step }) => step === "held").length);
}

test("the lease of a killed server goes to the waiting server when it has expired", async () => {
  const { facts, start } = await open();
  const owner = start("a", "keep");
  const first = await owner.step("held");
  const successor = start("b", "keep");
  await successor.step("waiting");
  await owner.step("wrote");
  await owner.kill();
  const last = writesOf(facts).at(-1);
  const held = await successor.step("held");
  expect(held).toMatchObject({ origin: "expired", epoch: (first.epoch ?? 0) + 1 });
  // An owner stops this long before another server may start.
  expect(held.atMs - (last?.atMs ?? 0)).toBeGreaterThan(leaseWorkerTiming.stopMs);
  const next = await successor.step("wrote");
  expect(next.value).toBeGreaterThan(last?.value ?? 0);
  expectOneOwner(facts);
});

test("a server that was stopped while it owned the lease writes nothing after it continues", async () => {
  const { facts, start } = await open();
  const owner = start("a", "keep");
  await owner.step("wrote");
  const successor = start("b", "keep");
  await successor.step("waiting");
  owner.stop();
  const held = await successor.step("held");
  expect(held.origin).toBe("expired");
  await successor.step("wrote");
  owner.wake();
  const lost = await owner.step("lost");
  expect(lost.reason).toBe("expired");
  await owner.step("waiting");
  await successor.step("wrote");
  await Promise.all([owner.kill(), successor.kill()]);
  const late = facts.filter(({ id, step, atMs }) => id === "a" && step === "wrote" && atMs > held.atMs);
  expect(late).toEqual([]);
  expectOneOwner(facts);
});

test("two servers that hand a sandbox to each other repeatedly lose no count", async () => {
  const { facts, start } = await open();
  const [one, two] = [start("a"), start("b")];
  for (let turn = 0; turn < 3; turn += 1) {
    await one.step("released");
    await two.step("released");
  }
  await Promise.all([one.kill(), two.kill()]);
  expect(facts.filter(({ origin }) => origin === "released").length).toBeGreaterThan(3);
  expectOneOwner(facts);
  // A busy machine may lose a lease, and with it the reply to one write.
  const writes = writesOf(facts);
  const unanswered = (writes.at(-1)?.value ?? 0) - writes.length;
  expect(unanswered).toBeLessThanOrEqual(facts.filter(({ step }) => step === "lost").length);
});

test(
  "while any of three servers are killed at any time, there is one owner, and the lease goes on",
  { timeout: 300_000 },
  async () => {
    const { facts, start } = await open();
    const workers = ["a", "b", "c"].map((id) => start(id));
    for (let round = 0; round < 3; round += 1) {
      const held = await Promise.any(workers.map((worker) => worker.step("held")));
      const victim = round % 2 === 0 ? workers.findIndex(({ id }) => id === held.id) : randomInt(workers.length);
      const worker = workers[victim];
      if (worker === undefined) throw new Error("There is no worker to kill");
      await worker.kill();
      workers[victim] = start(`${worker.id}${round}`);
    }
    await Promise.any(workers.map((worker) => worker.step("held")));
    await Promise.all(workers.map((worker) => worker.kill()));
    expectOneOwner(facts);
  },
);
