/**
 * A server that competes for one sandbox: it acquires the lease, counts up under it, releases it to a server that
 * waits, and acquires it again. It prints what it does on stdout, one line of JSON each. Run as `lease-worker.ts <store
 * directory> <id> [keep]`; with `keep` it never releases the lease to another server.
 */
import { writeSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { isSandboxError } from "@atoll/protocol";
import { FencedObject, FileObjectStore, Leases, type Lease } from "@atoll/storage";
import { leaseWorkerTiming, type LeaseFact } from "../lease-facts.ts";

const [directory = "", id = "", manner] = process.argv.slice(2);

/** Returns the time of a clock that all processes of the machine share. */
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
