import { access, readdir } from "node:fs/promises";
import { join } from "node:path";
import { SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { thorough } from "../../tools/thoroughness.mjs";
import { CrashingServer } from "../support/crashing-server.ts";
import { Conversation, openTestEngine, runIn } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

/** The steps of a fork at which a server can die, and how many copies run by then. */
const ownSteps: [step: string, copies: number][] = [
  ["fork: paused", 0],
  ["fork: inherited", 0],
  ["resume: verified", 2],
  ["fork: started", 2],
];
/** The steps of the pause in a fork, which has its own tests, and one step that equals the one before it. */
const otherSteps: typeof ownSteps = [
  ["pause: frozen", 0],
  ["pause: saved", 0],
  ["pause: manifest", 0],
  ["fork: ready", 0],
];
const steps = thorough(ownSteps, [...ownSteps, ...otherSteps]);

test.for(steps)("a server that dies at %s of a fork leaves a parent that runs on", async ([step, copies]) => {
  const dataDir = await makeDataDir();
  const server = new CrashingServer(dataDir, "fork", join(dataDir, "output.log"), step);
  const { sandboxId, streamId = 0 } = await server.until((fact) => fact.streamId !== undefined);
  const id = SandboxId.parse(sandboxId);
  await server.until((fact) => fact.step === step);
  const isCopyRunning = (fact: { state?: string; sandboxId?: string }): boolean =>
    fact.state === "running" && fact.sandboxId !== id;
  while (server.seen.filter(isCopyRunning).length < copies) await server.until(isCopyRunning);
  await server.killHard();

  const host = await openTestEngine({ dataDir });
  try {
    const parent = host.engine.get(id);
    expect(parent.state).toBe("running");
    const counting = parent.attach(streamId, { stdoutBytes: 4, stderrBytes: 0 });
    await counting.writeStdin("three\n");
    expect(await new Conversation(counting).until(/\n/)).toBe("3\n");
    expect((await runIn(parent, "cat /home/user/count")).output).toBe("1\n2\n3\n");
    await counting.kill("SIGKILL");

    // A copy exists completely or not at all, and a kill removes it.
    const others = host.engine.list().filter((record) => record.id !== id);
    expect(others.map(({ state }) => state)).toEqual(Array.from({ length: copies }, () => "running"));
    for (const other of others) {
      expect((await runIn(host.engine.get(other.id), "cat /home/user/count")).output).toBe("1\n2\n");
      await host.engine.kill(other.id);
    }
    expect(await readdir(join(dataDir, "sandboxes"))).toEqual([id]);
    // From now on the sandbox is paused by a request, so a later server must not wake it.
    await expect(access(join(dataDir, "sandboxes", id, "wake"))).rejects.toThrow("ENOENT");
    await host.engine.pause(id);
    await host.engine.close();
    const next = await openTestEngine({ dataDir });
    expect(next.engine.get(id).state).toBe("paused");
    await next.dispose();
  } finally {
    await host.dispose();
  }
});
