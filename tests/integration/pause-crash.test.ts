// @module-tag gvisor
import { access, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SandboxId, SandboxRecord } from "@atoll/protocol";
import { afterAll, describe, expect, test, vi } from "vitest";
import { CrashingServer, type Fact } from "../support/crashing-server.ts";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

/** The steps at which a server can die, and the state in which the next server finds its sandbox. */
const steps: [step: string, found: "running" | "paused"][] = [
  ["pause: intent", "running"],
  ["pause: prepared", "running"],
  ["pause: frozen", "running"],
  ["pause: saving", "running"],
  ["pause: saved", "paused"],
  ["pause: stopped", "paused"],
  ["pause: layer", "paused"],
  ["pause: sealed", "paused"],
  ["pause: manifest", "paused"],
  ["resume: intent", "paused"],
  ["resume: verified", "paused"],
  ["resume: answered", "paused"],
  ["resume: running", "running"],
];

interface Crashed {
  dataDir: string;
  host: TestEngine;
  /** The facts that the server printed about each sandbox, with the step at which that sandbox stopped. */
  started: Fact[];
}

describe("a server that dies", () => {
  let crashed: Promise<Crashed> | undefined;

  /** Kills a server whose sandboxes have stopped at different steps, and opens one engine for all of them. */
  async function crash(): Promise<Crashed> {
    const dataDir = await makeDataDir();
    const server = new CrashingServer(dataDir, "move-each", dataDir, ...steps.map(([step]) => step));
    await server.until((fact) => fact.done === true);
    await server.killHard();
    const started = server.seen.filter(({ streamId }) => streamId !== undefined);
    return { dataDir, started, host: await openTestEngine({ dataDir }) };
  }
  afterAll(async () => (await crashed)?.host.dispose());

  test.for(steps)("at %s leaves a sandbox that is %s and goes on", async ([step, found]) => {
    const { dataDir, host, started } = await (crashed ??= crash());
    const { sandboxId, streamId = 0 } = started.find((fact) => fact.step === step) ?? {};
    const sandbox = host.engine.get(SandboxId.parse(sandboxId));
    expect(sandbox.state).toBe(found);
    if (found === "paused") {
      expect(await readdir(join(dataDir, "sandboxes", sandbox.id, "run"))).toEqual([]);
      await host.engine.resume(sandbox.id);
    }
    // There is one container, and in it the same process with its count.
    expect(await readdir(join(dataDir, "sandboxes", sandbox.id, "run"))).toHaveLength(1);
    const counting = sandbox.attach(streamId, { stdoutBytes: 4, stderrBytes: 0 });
    await counting.writeStdin("three\n");
    expect(await new Conversation(counting).until(/\n/)).toBe("3\n");
    expect((await runIn(sandbox, "cat /home/user/count")).output).toBe("1\n2\n3\n");
    await counting.kill("SIGKILL");
    // Leftovers of the interrupted operation do not make the next one fail.
    await host.engine.pause(sandbox.id);
    await host.engine.resume(sandbox.id);
    expect((await runIn(sandbox, "cat /home/user/count")).output).toBe("1\n2\n3\n");
    await sandbox.kill();
  });
});

test("a server that dies while memory is written leaves a paused sandbox with its complete memory", async () => {
  const dataDir = await makeDataDir();
  const server = new CrashingServer(dataDir, "hold", "96");
  const { sandboxId, streamId = 0 } = await server.until((fact) => fact.streamId !== undefined);
  const begun = join(dataDir, "sandboxes", sandboxId ?? "", "checkpoints/1/outcome.stderr");
  await vi.waitFor(() => access(begun), { interval: 1, timeout: 60_000 });
  await server.killHard();
  // The process that saves memory has not finished yet.
  await expect(access(begun.replace(".stderr", ""))).rejects.toThrow("ENOENT");

  const host = await openTestEngine({ dataDir });
  try {
    const sandbox = host.engine.get(SandboxId.parse(sandboxId));
    expect(sandbox.state).toBe("paused");
    await host.engine.resume(sandbox.id);
    const holding = sandbox.attach(streamId, { stdoutBytes: 65, stderrBytes: 0 });
    await holding.writeStdin("go\n");
    // The digest of the process's memory is unchanged.
    expect(await new Conversation(holding).until(/\n/)).toBe("same\n");
  } finally {
    await host.dispose();
  }
});

test.for(["pause: saved", "pause: sealed"])(
  "a memory image without a manifest after a crash of the machine at %s is not used, and the files survive",
  async (step) => {
    const dataDir = await makeDataDir();
    const server = new CrashingServer(dataDir, "move", join(dataDir, "output.log"), step);
    const { sandboxId = "" } = await server.until((fact) => fact.streamId !== undefined);
    await server.until((fact) => fact.step === step);
    await server.killHard();
    const recordFile = join(dataDir, "sandboxes", sandboxId, "record.json");
    const record = SandboxRecord.parse(JSON.parse(await readFile(recordFile, "utf8")));
    if (record.state !== "pausing") throw new Error(`The sandbox is ${record.state}`);
    const container = { ...record.container, bootId: "00000000-0000-4000-8000-000000000000" };
    await writeFile(recordFile, JSON.stringify({ ...record, container }));

    const host = await openTestEngine({ dataDir });
    try {
      const sandbox = host.engine.get(SandboxId.parse(sandboxId));
      expect(sandbox.record).toMatchObject({ state: "failed", survives: ["files"] });
      expect(await host.engine.checkpoints(sandbox.id)).toEqual([]);
      const count = join(dataDir, "sandboxes", sandboxId, "layers/0/upper/home/user/count");
      expect(await readFile(count, "utf8")).toBe("1\n2\n");
    } finally {
      await host.dispose();
    }
  },
);

test("a server that dies while it restores a sandbox makes no checkpoint of old memory and newer files", async () => {
  const dataDir = await makeDataDir();
  const server = new CrashingServer(
    dataDir,
    "move",
    join(dataDir, "output.log"),
    "pause: brought back",
    "pause: sealed",
  );
  const { sandboxId } = await server.until((fact) => fact.streamId !== undefined);
  await server.until((fact) => fact.step === "pause: brought back");
  await server.killHard();

  const host = await openTestEngine({ dataDir });
  try {
    const sandbox = host.engine.get(SandboxId.parse(sandboxId));
    expect(sandbox.record).toMatchObject({ state: "failed", survives: ["files"] });
    expect(await host.engine.checkpoints(sandbox.id)).toEqual([]);
    await host.engine.saveFiles(sandbox.id, join(dataDir, "saved"), { signal: new AbortController().signal });
  } finally {
    await host.dispose();
  }
});

test("a pause that the next server cannot finish at once is finished later", async () => {
  const dataDir = await makeDataDir();
  const server = new CrashingServer(dataDir, "move", join(dataDir, "output.log"), "pause: saved");
  const { sandboxId } = await server.until((fact) => fact.streamId !== undefined);
  await server.until((fact) => fact.step === "pause: saved");
  await server.killHard();

  let isFull = true;
  const host = await openTestEngine({
    dataDir,
    atStep: (step) => {
      if (isFull && step === "pause: sealed") throw new Error("no space left on device");
    },
  });
  try {
    const sandbox = host.engine.get(SandboxId.parse(sandboxId));
    expect(sandbox.state).toBe("pausing");
    isFull = false;
    await expect.poll(() => sandbox.state).toBe("paused");
    await host.engine.resume(sandbox.id);
    expect((await runIn(sandbox, "cat /home/user/count")).output).toBe("1\n2\n");
  } finally {
    await host.dispose();
  }
});
