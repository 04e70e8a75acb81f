// @module-tag gvisor
import { readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { CommandId, SandboxId } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import type { CrashPlan } from "../support/crashing-server.ts";
import { CrashingManager } from "../support/crashing-server.ts";
import { freezerOf, isFrozen } from "../support/freezer.ts";
import { openManagerStore } from "../support/manager-store.ts";
import { openTestManager, readAll, start, type TestManager } from "../support/test-manager.ts";
import { makeDataDir } from "../support/test-root.ts";

const before = { stdoutBytes: 8, commands: 2, next: "a 1\nb 2\nz 3\n" };
const after = { stdoutBytes: 4, commands: 1, next: "a 1\nz 2\n" };

/**
 * The steps at which a server can die, and what the next server finds. If a step is named last, the disk is full at
 * that step when the next server starts.
 */
const steps: [step: string, state: "running" | "paused", found: typeof before, fullAt?: string][] = [
  ["pause: saved", "paused", before],
  ["pause: saved", "paused", before, "pause: sealed"],
  ["rollback: prepared", "paused", before],
  ["resume: intent", "paused", after],
  ["resume: running", "running", after],
  ["rollback: switched", "running", after],
];

test.for(steps)(
  "a server that dies at %s leaves the complete state before or after the rollback",
  async ([step, state, found, fullAt]) => {
    const dataDir = await makeDataDir();
    const server = new CrashingManager(dataDir, "roll-back", step);
    const { sandboxId, commandId } = await server.until((fact) => fact.commandId !== undefined);
    await server.until((fact) => fact.step === step);
    await server.killHard();

    let isFull = true;
    const atStep = (now: string): void => {
      if (isFull && now === fullAt) throw new Error("no space left on device");
    };
    const host = await openTestManager({ dataDir, engineOptions: { atStep } });
    try {
      const { manager } = host;
      const id = SandboxId.parse(sandboxId);
      if (fullAt !== undefined) expect(manager.get(id).state).toBe("pausing");
      isFull = false;
      await expect.poll(() => manager.get(id).state, patient).toBe(state);
      expect(manager.commands(id)).toHaveLength(found.commands);
      const command = manager.command(id, CommandId.parse(commandId));
      expect(command.info()).toMatchObject({ state: "running", stdoutBytes: found.stdoutBytes });
      await manager.pauseResume.wake(id);
      await command.writeStdin(Buffer.from("z\n"), { offset: found.stdoutBytes / 2 });
      await command.closeStdin();
      expect(await command.waitEnd(AbortSignal.timeout(60_000))).toMatchObject({ exitCode: 0 });
      let output = "";
      for await (const piece of command.follow()) if (piece.type === "output") output += piece.data.toString();
      expect(output).toBe(found.next);
    } finally {
      await host.dispose();
    }
  },
);

/** Lease time that is long enough for a busy machine to renew its leases in time. */
const ttlMs = 10_000;
const patient = { timeout: 60_000, interval: 50 };

/**
 * The steps at which the server of persistent sandboxes dies, and how another server finds them when it has started
 * again: `left` is the number of the checkpoint that a rollback made of the state before, and `stdoutBytes` the length
 * of the command's output.
 */
const found = {
  "the pause of a rollback": { move: "rollback", step: "pause: frozen", rollbacks: undefined, stdoutBytes: 8 },
  "before the switch": { move: "rollback", step: "rollback: prepared", rollbacks: undefined, stdoutBytes: 8, left: 2 },
  "the resume of a rollback": { move: "rollback", step: "resume: intent", rollbacks: 1, stdoutBytes: 4, left: 2 },
  "after the switch": { move: "rollback", step: "resume: running", rollbacks: 1, stdoutBytes: 4, left: 2 },
  "the end of a rollback": { move: "rollback", step: "rollback: switched", rollbacks: 1, stdoutBytes: 4, left: 2 },
  "the beginning of a pause": { move: "pause", step: "pause: intent", rollbacks: undefined, stdoutBytes: 8 },
  "a pause that is frozen": { move: "pause", step: "pause: frozen", rollbacks: undefined, stdoutBytes: 8 },
} as const;
/** The same for sandboxes that another server takes over while theirs is dead. */
const takenOver = {
  "a rollback that is over": { move: "rollback", step: "rollback: switched" },
  "a pause that is frozen for good": { move: "pause", step: "pause: saving" },
} as const;

test("a server that dies during pauses and rollbacks of persistent sandboxes loses nothing", async () => {
  const [storeDir, dataDir, otherDir] = await Promise.all([makeDataDir(), makeDataDir(), makeDataDir()]);
  onTestFinished(() => rm(storeDir, { recursive: true, force: true }));
  const plan: CrashPlan = { ...found, ...takenOver };
  const crashing = new CrashingManager(dataDir, "move-persistent", storeDir, String(ttlMs), JSON.stringify(plan));
  const seen = (fact: "name" | "step"): number => crashing.seen.filter((one) => one[fact] !== undefined).length;
  const count = Object.keys(plan).length;
  await crashing.until(() => seen("name") === count && seen("step") === count);
  const idOf = (name: keyof typeof found | keyof typeof takenOver): SandboxId =>
    SandboxId.parse(crashing.seen.find((fact) => fact.name === name)?.sandboxId);
  const still = idOf("a pause that is frozen for good");
  const group = await freezerOf(dataDir, still);
  await crashing.killHard();
  const countTicks = (dir: string, id: string): number =>
    readFileSync(join(dir, "sandboxes", id, "layers/0/upper/home/user/ticks"), "utf8").split("\n").length;
  const ticks = countTicks(dataDir, still);

  const open = async (name: string, dir: string): Promise<TestManager> => {
    const store = await openManagerStore(storeDir, { name, dataDir: dir, ttlMs });
    const host = await openTestManager({ dataDir: dir, persistence: store.persistence });
    onTestFinished(async () => {
      await host.dispose();
      await store.close();
    });
    host.manager.persistent.start();
    return host;
  };
  const bring = async ({ manager }: TestManager, id: SandboxId): Promise<void> => {
    await manager.access.locate(id);
    (await manager.access.acquire(id, AbortSignal.timeout(patient.timeout)))();
    await manager.pauseResume.wake(id);
  };
  const storedAt = async ({ manager }: TestManager, id: SandboxId): Promise<number[]> =>
    (await manager.pauseResume.checkpoints(id)).filter(({ stored }) => stored).map(({ n }) => n);

  const other = await open("other", otherDir);
  const rolledBack = idOf("a rollback that is over");
  await Promise.all([rolledBack, still].map((id) => bring(other, id)));
  for (const id of [rolledBack, still])
    expect(other.manager.get(id)).toMatchObject({
      checkpoint: 1,
      takenOver: { checkpoint: 1, fromServer: { id: "crashing" } },
    });
  await expect(other.manager.rollbacks.rollback(rolledBack, { checkpoint: 2, force: false })).rejects.toMatchObject({
    code: "not_found",
    suggestion: expect.stringContaining("crashing"),
  });
  // No freezer holds the container that was being saved, and no process in it runs: runsc has stopped it until it is
  // saved or ends.
  await start(other.manager, still, "while sleep 0.02; do echo tick >>ticks; done");
  await expect.poll(() => countTicks(otherDir, still), patient).toBeGreaterThan(30);
  expect([isFrozen(group), countTicks(dataDir, still)]).toEqual([false, ticks]);

  const again = await open("crashing", dataDir);
  // The checkpoint of the state before the rollback is stored before the local copy is dropped.
  await expect.poll(() => again.manager.engine.list().map(({ id }) => id), patient).not.toContain(rolledBack);
  expect(await storedAt(other, rolledBack)).toEqual([1, 2]);
  await other.manager.rollbacks.rollback(rolledBack, { checkpoint: 2, force: false });
  expect((await readAll(await start(other.manager, rolledBack, "cat count"))).text).toBe("1\n2\n");

  await Promise.all(
    Object.entries(found).map(async ([name, { stdoutBytes, rollbacks, ...rest }]) => {
      const id = idOf(name as keyof typeof found);
      await bring(again, id);
      expect([name, again.manager.get(id).rollbacks]).toEqual([name, rollbacks]);
      await bring(other, id);
      const { manager } = other;
      const info = manager.get(id);
      expect([name, info.state, info.rollbacks, info.takenOver]).toEqual([name, "running", rollbacks, undefined]);
      const { commandId } = crashing.seen.find((fact) => fact.name === name) ?? {};
      const command = manager.command(id, CommandId.parse(commandId));
      expect([name, command.info()]).toEqual([name, expect.objectContaining({ state: "running", stdoutBytes })]);
      expect((await readAll(await start(manager, id, "cat count"))).text).toBe(stdoutBytes === 4 ? "1\n" : "1\n2\n");
      const stored = await storedAt(other, id);
      expect([name, stored.slice(0, 2)]).toEqual([name, [1, "left" in rest ? rest.left : expect.any(Number)]]);
    }),
  );
});
