import { readFileSync } from "node:fs";
import { join } from "node:path";
import { uptimeMs, type Sandbox } from "@atoll/engine";
import { pollUntil } from "@atoll/host";
import { SandboxId } from "@atoll/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { CrashingServer } from "../support/crashing-server.ts";
import { describeDrivers } from "../support/drivers.ts";
import { freezerOf, isFrozen, untilFrozen } from "../support/freezer.ts";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

const patienceMs = 60_000;
const soonMs = 1_500;
const laterMs = 10 * patienceMs;

let host: TestEngine | undefined;
afterEach(async () => {
  await host?.dispose();
  host = undefined;
});

/** Returns the count in the sandbox's file, read on the host. It fails on a gap or a second start from 1. */
function count(dataDir: string, id: string): number {
  const text = readFileSync(join(dataDir, "sandboxes", id, "layers/0/upper/home/user/count"), "utf8");
  const lines = text.split("\n").slice(0, -1);
  expect(lines.findIndex((line, index) => line !== String(index + 1))).toBe(-1);
  return lines.length;
}

describeDrivers("a sandbox of driver %s with a deadline", (driver) => {
  test("stops at the deadline when its server is dead, and goes on where it was with a later deadline", async () => {
    const dataDir = await makeDataDir();
    const server = new CrashingServer(dataDir, "deadline", driver, String(soonMs));
    const { sandboxId = "", streamId = 0, until } = await server.until((fact) => fact.streamId !== undefined);
    await server.killHard();
    await untilFrozen(dataDir, { id: sandboxId });
    expect(uptimeMs()).toBeGreaterThanOrEqual(until ?? Infinity);
    const stopped = count(dataDir, sandboxId);

    host = await openTestEngine({ dataDir });
    const sandbox = host.engine.get(SandboxId.parse(sandboxId));
    expect([sandbox.state, sandbox.allowedUntil]).toEqual(["running", until]);
    expect(host.engine.repairs[0]).toMatchObject({ done: "kept" });
    await expect(runIn(sandbox, "true")).rejects.toMatchObject({ code: "unavailable" });
    expect(count(dataDir, sandboxId)).toBe(stopped);

    await sandbox.allowUntil(uptimeMs() + laterMs);
    expect(await pollUntil(() => count(dataDir, sandboxId) > stopped, { deadlineMs: patienceMs })).toBe(true);
    const counting = sandbox.attach(streamId, { stdoutBytes: 0, stderrBytes: 0 });
    await counting.kill("SIGKILL");
    expect((await counting.wait()).signal).toBe("SIGKILL");
    const { output } = await runIn(sandbox, "wc -l </home/user/count");
    expect(Number(output)).toBe(count(dataDir, sandboxId));
  });

  test("is taken over with its deadline by the next server, and can be killed while it is stopped", async () => {
    const dataDir = await makeDataDir();
    const server = new CrashingServer(dataDir, "deadline", driver, String(laterMs));
    const { sandboxId = "", until } = await server.until((fact) => fact.streamId !== undefined);
    await server.killHard();
    host = await openTestEngine({ dataDir });
    const sandbox = host.engine.get(SandboxId.parse(sandboxId));
    expect(sandbox.allowedUntil).toBe(until);
    expect((await runIn(sandbox, "echo here")).output).toBe("here\n");
    const group = await freezerOf(dataDir, sandboxId);
    await sandbox.allowUntil(uptimeMs());
    await untilFrozen(dataDir, sandbox);
    await sandbox.allowUntil(undefined);
    expect(await pollUntil(() => !isFrozen(group), { deadlineMs: patienceMs })).toBe(true);
    await sandbox.allowUntil(0);
    await untilFrozen(dataDir, sandbox);
    await sandbox.kill();
    expect(() => isFrozen(group)).toThrow("ENOENT");
  });
});

describe("a pause during which the deadline passes", { tags: "gvisor" }, () => {
  /** Opens an engine and lets the deadline pass at one step of the first pause. */
  async function openWithDeadlineAt(last: string): Promise<{ sandbox: Sandbox; dataDir: string }> {
    const opened = await openTestEngine({
      atStep: async (step, id) => {
        if (step === last) await opened.engine.get(id).allowUntil(0);
      },
    });
    host = opened;
    const sandbox = await opened.engine.create({}, { allowUntil: uptimeMs() + laterMs });
    return { sandbox, dataDir: opened.dataDir };
  }

  test("succeeds if everything was frozen already, and the sandbox resumes only with a later deadline", async () => {
    const { sandbox } = await openWithDeadlineAt("pause: frozen");
    const { engine } = host ?? expect.fail();
    const counting = await sandbox.spawn({
      argv: ["bash", "-c", "i=0; while read x; do echo $((i+=1)); done"],
      stdin: true,
    });
    const talk = new Conversation(counting);
    await counting.writeStdin("one\n");
    expect(await talk.until(/\n/)).toBe("1\n");
    await engine.pause(sandbox.id);
    expect(sandbox.state).toBe("paused");
    await expect(engine.resume(sandbox.id)).rejects.toMatchObject({ code: "unavailable" });
    expect(sandbox.state).toBe("paused");
    await engine.resume(sandbox.id, { allowUntil: uptimeMs() + laterMs });
    await counting.writeStdin("two\n");
    expect(await talk.until(/\n/)).toBe("2\n");
    await engine.pause(sandbox.id);
  });

  test("is refused at an earlier step, and nothing is lost", async () => {
    const { sandbox, dataDir } = await openWithDeadlineAt("pause: frozen");
    const { engine } = host ?? expect.fail();
    const holding = await sandbox.spawn({
      argv: ["bash", "-c", "exec 5>/home/user/held; rm /home/user/held; echo held; read x; echo $x >&5; echo done"],
      stdin: true,
    });
    const talk = new Conversation(holding);
    await talk.until(/held\n/);
    const pausing = engine.pause(sandbox.id).catch((error: unknown) => error);
    await untilFrozen(dataDir, sandbox);
    expect(sandbox.state).toBe("pausing");
    await sandbox.allowUntil(uptimeMs() + laterMs);
    expect(await pausing).toMatchObject({ code: "unsaveable" });
    expect(sandbox.state).toBe("running");
    await holding.writeStdin("go\n");
    expect(await talk.until(/done\n/)).toBe("done\n");
  });

  test("leaves the deadline in force when its server dies", async () => {
    const dataDir = await makeDataDir();
    const server = new CrashingServer(dataDir, "deadline", "gvisor", String(laterMs), "pause: saving");
    const { sandboxId = "", until } = await server.until((fact) => fact.streamId !== undefined);
    await server.until((fact) => fact.step !== undefined);
    await server.killHard();
    host = await openTestEngine({ dataDir });
    const sandbox = host.engine.get(SandboxId.parse(sandboxId));
    expect([sandbox.state, sandbox.allowedUntil]).toEqual(["running", until]);
    await sandbox.allowUntil(uptimeMs() + 100);
    await untilFrozen(dataDir, sandbox);
  });
});
