import type { Sandbox } from "@atoll/engine";
import { SandboxError } from "@atoll/protocol";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { hostLeftovers } from "../support/host-leftovers.ts";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

let host: TestEngine;
let atStep: (step: string) => void = () => undefined;
beforeAll(async () => {
  host = await openTestEngine({ atStep: (step) => atStep(step) });
});
afterEach(async () => {
  atStep = () => undefined;
  await Promise.all(host.engine.list().map(({ id }) => host.engine.kill(id)));
});
afterAll(() => host.dispose());

/** Kills the runtime of a sandbox. The launcher lives on and reports how the runtime ended. */
async function fail(sandbox: Sandbox): Promise<void> {
  const launcher = "container" in sandbox.record ? sandbox.record.container.pid : 0;
  const { processes } = await hostLeftovers(host.dataDir);
  for (const pid of processes.filter((found) => found !== launcher)) killIfThere(pid);
  await expect.poll(() => sandbox.state).toBe("failed");
}

/** Kills a process, which may have ended together with another one. */
function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

const wordsOf = async (sandbox: Sandbox): Promise<string> => (await runIn(sandbox, "cat words")).output;

test.for([
  ["local", "never"],
  ["gvisor", "never"],
  ["gvisor", "once"],
] as const)(
  "a sandbox under %s that was %s paused and has failed restarts with all its files",
  { tags: "gvisor" },
  async ([driver, paused]) => {
    const sandbox = await host.engine.create({ driver });
    await runIn(sandbox, "echo one >words");
    if (paused === "once") {
      await host.engine.pause(sandbox.id);
      await host.engine.resume(sandbox.id);
    }
    await runIn(sandbox, "echo two >>words");
    await fail(sandbox);
    await expect(host.engine.resume(sandbox.id)).rejects.toMatchObject({ code: "invalid_state" });
    const { checkpoint, phases, totalMs } = await host.engine.resume(sandbox.id, { memory: false });
    expect(checkpoint).toBe(paused === "once" ? 1 : undefined);
    expect(Object.values(phases).reduce((sum, ms) => sum + ms, 0)).toBeCloseTo(totalMs);
    expect(await wordsOf(sandbox)).toBe("one\ntwo\n");
    if (driver === "local") return;
    await host.engine.pause(sandbox.id);
    await host.engine.resume(sandbox.id);
    expect(await wordsOf(sandbox)).toBe("one\ntwo\n");
    // The restarted sandbox is watched like before.
    await fail(sandbox);
  },
);

test("a failed sandbox that cannot be restarted stays failed, and can be restarted later", async () => {
  const sandbox = await host.engine.create({ driver: "local" });
  await runIn(sandbox, "echo one >words");
  await fail(sandbox);
  const { record } = sandbox;
  atStep = (step) => {
    if (step === "restart: answered") throw new SandboxError("no_space", "Cannot go on: no space left on device");
  };
  await expect(host.engine.resume(sandbox.id, { memory: false })).rejects.toMatchObject({ code: "no_space" });
  expect(sandbox.record).toEqual(record);
  expect((await hostLeftovers(host.dataDir)).processes).toEqual([]);
  atStep = () => undefined;
  await host.engine.resume(sandbox.id, { memory: false });
  expect(await wordsOf(sandbox)).toBe("one\n");
});
