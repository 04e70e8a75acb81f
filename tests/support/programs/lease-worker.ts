/**
 * A server that wants one sandbox: takes its lease, counts up under it, gives it to whoever waits, and wants it again.
 * Says on stdout what it does, a JSON line each. Run as `lease-worker.ts <store directory> <id> [keep]`; with `keep` it
 * gives nothing away.
 */
import { writeSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { isSandboxError } from "@atoll/protocol";
import { FencedObject, FileObjectStore, Leases, type Lease } from "@atoll/storage";
import { leaseWorkerTiming, type LeaseFact } from "../lease-facts.ts";

const [directory = "", id = "", manner] = process.argv.slice(2);

/** The same for all processes of the machine. */
const nowMs = (): number => Number(process.hrtime.bigint()) / 1e6;

function say(fact: Omit<LeaseFact, "id" | "atMs">, atMs = nowMs()): void {
  writeSync(1, `${JSON.stringify({ id, atMs, ...fact })}\n`);
}

const store = await FileObjectStore.open(directory);
const leases = new Leases({ store, self: { id, url: `pid:${process.pid}` }, timing: leaseWorkerTiming });

const schema = { parse: Number };

async function count(lease: Lease, isWanted: () => boolean): Promise<void> {
  const counter = await FencedObject.claim({ store, key: "sandboxes/one/counter.json", schema }, lease);
  while (!isWanted()) {
    const next = (counter.content ?? 0) + 1;
    lease.assertCurrent();
    const atMs = nowMs();
    await counter.write(next);
    say({ step: "wrote", value: next, epoch: lease.epoch }, atMs);
    await pause(5);
  }
}

for (;;) {
  try {
    const lease = await leases.waitForHandover("sandboxes/one/lease.json", {
      onProgress: ({ phase }) => say({ step: phase }),
      onLost: ({ reason }) => say({ step: "lost", reason }),
    });
    say({ step: "held", epoch: lease.epoch, origin: lease.origin });
    await count(lease, () => manner !== "keep" && lease.waiter !== undefined);
    await lease.release();
    say({ step: "released", epoch: lease.epoch });
  } catch (error) {
    if (!isSandboxError(error)) throw error;
    say({ step: "refused", reason: error.code });
  }
  await pause(50);
}
