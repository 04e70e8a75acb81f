// @module-tag gvisor
import { createHash } from "node:crypto";
import { copyFile, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Sandbox } from "@atoll/engine";
import { pollUntil } from "@atoll/host";
import { CheckpointManifest, isSandboxError, type SandboxId, type PhaseTimes } from "@atoll/protocol";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { freezerOf } from "../support/freezer.ts";
import { Conversation, openTestEngine, runIn, stateReached, type TestEngine } from "../support/test-engine.ts";

let host: TestEngine;
let atStep: (step: string, id: SandboxId) => Promise<void> | void = () => undefined;
beforeAll(async () => {
  host = await openTestEngine({ atStep: (step, id) => atStep(step, id) });
});
afterEach(() => {
  atStep = () => undefined;
});
afterAll(() => host.dispose());

const counter = "i=0; while read word; do i=$((i+1)); echo $word >>words; echo $i; done";

/** Returns the processes of the host that run a container. */
async function pidsOf(containerId: string): Promise<number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const commands = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return pids.filter((_, index) => commands[index]?.includes(containerId)).map(Number);
}

const checkpointsOf = (id: SandboxId): string => join(host.dataDir, "sandboxes", id, "checkpoints");

test.for(["prepared", "frozen", "saved", "stopped", "layer", "sealed", "manifest"])(
  "a sandbox whose pause fails at %s runs on with everything it had",
  async (failing) => {
    const sandbox = await host.engine.create({});
    const counting = await sandbox.spawn({ argv: ["bash", "-c", counter], stdin: true });
    const talk = new Conversation(counting);
    await counting.writeStdin("one\n");
    await talk.until(/1\n/);
    atStep = (step) => {
      if (step === `pause: ${failing}`) throw new Error("no space left on device");
    };
    await expect(host.engine.pause(sandbox.id)).rejects.toThrow("no space left on device");
    expect(sandbox.state).toBe("running");
    expect(await host.engine.checkpoints(sandbox.id)).toEqual([]);
    expect(await readdir(join(host.dataDir, "sandboxes", sandbox.id, "run"))).toHaveLength(1);
    await counting.writeStdin("two\n");
    expect(await talk.until(/\n/)).toBe("2\n");

    atStep = () => undefined;
    await host.engine.pause(sandbox.id);
    await host.engine.resume(sandbox.id);
    await counting.writeStdin("three\n");
    expect(await talk.until(/\n/)).toBe("3\n");
    expect((await runIn(sandbox, "cat words")).output).toBe("one\ntwo\nthree\n");
    await sandbox.kill();
    expect(await readdir(join(host.dataDir, "layers"))).toEqual([]);
  },
);

test("a sandbox whose memory cannot be written fails, and its record says what survives", async () => {
  const sandbox = await host.engine.create({});
  await sandbox.files.write("/home/user/note", "kept");
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  atStep = async (step, id) => {
    // runsc does not overwrite an existing file.
    if (step === "pause: saving") await writeFile(join(checkpointsOf(id), "2/memory/checkpoint.img"), "in the way");
  };
  const error: unknown = await host.engine.pause(sandbox.id).catch((reason: unknown) => reason);
  if (!isSandboxError(error, "sandbox_ended")) throw error;
  expect(error.message).toMatch(/its memory could not be saved; its files survive, and its earlier checkpoints/);
  expect(sandbox.record).toMatchObject({ state: "failed", survives: ["files", "checkpoints"] });
  expect((await host.engine.checkpoints(sandbox.id)).map(({ n }) => n)).toEqual([1]);
  await sandbox.kill();
});

test("a sandbox with an unusable memory image stays paused, and resumes when the image is repaired", async () => {
  const sandbox = await host.engine.create({});
  const counting = await sandbox.spawn({ argv: ["bash", "-c", counter], stdin: true });
  const talk = new Conversation(counting);
  await counting.writeStdin("one\n");
  await talk.until(/1\n/);
  await host.engine.pause(sandbox.id);
  const manifestFile = join(checkpointsOf(sandbox.id), "1/manifest.json");
  const image = join(checkpointsOf(sandbox.id), "1/memory/checkpoint.img");
  const good = await readFile(manifestFile);
  await copyFile(image, `${image}.good`);
  const bytes = Buffer.alloc(100_000, 7);
  await writeFile(image, bytes);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const manifest = CheckpointManifest.parse(JSON.parse(good.toString()));
  const memory = [{ name: "checkpoint.img", sizeBytes: bytes.byteLength, sha256 }];
  await writeFile(manifestFile, JSON.stringify({ ...manifest, memory }));

  const error: unknown = await host.engine.resume(sandbox.id).catch((reason: unknown) => reason);
  expect(isSandboxError(error, "start_failed")).toBe(true);
  expect(sandbox.state).toBe("paused");
  expect(await readdir(join(host.dataDir, "sandboxes", sandbox.id, "run"))).toEqual([]);

  await rename(`${image}.good`, image);
  await writeFile(manifestFile, good);
  await host.engine.resume(sandbox.id);
  await counting.writeStdin("two\n");
  expect(await talk.until(/\n/)).toBe("2\n");
  await sandbox.kill();
});

test("a sandbox that ends between its first answer and the state running has failed", async () => {
  const sandbox = await host.engine.create({});
  await host.engine.pause(sandbox.id);
  const hasFailed = stateReached(host.engine, sandbox.id, "failed");
  atStep = async (step, id) => {
    if (step !== "resume: answered") return;
    const [container = ""] = await readdir(join(host.dataDir, "sandboxes", id, "run"));
    const pids = await pidsOf(container);
    for (const pid of pids) process.kill(pid, "SIGKILL");
    await pollUntil(async () => (await pidsOf(container)).length === 0, { deadlineMs: 60_000 });
  };
  await host.engine.resume(sandbox.id);
  await hasFailed;
  await expect(runIn(sandbox, "true")).rejects.toMatchObject({ code: "invalid_state" });
  await sandbox.kill();
});

test("an aborted call does not stop a pause, and undoes a resume", async () => {
  const sandbox = await host.engine.create({});
  const left = new AbortController();
  atStep = (step) => {
    if (step === "pause: frozen" || step === "resume: verified") left.abort(new Error("call aborted"));
  };
  await host.engine.pause(sandbox.id, { signal: left.signal });
  expect(sandbox.state).toBe("paused");
  await expect(host.engine.resume(sandbox.id, { signal: left.signal })).rejects.toThrow("call aborted");
  expect(sandbox.state).toBe("paused");
  atStep = () => undefined;
  await host.engine.resume(sandbox.id);
  expect((await runIn(sandbox, "echo alive")).output).toBe("alive\n");
  await sandbox.kill();
});

test("an engine that is closed in the middle of a pause finishes it first", async () => {
  const own = await openTestEngine();
  const sandbox = await own.engine.create({});
  const isPausing = stateReached(own.engine, sandbox.id, "pausing");
  const pausing = own.engine.pause(sandbox.id);
  await isPausing;
  await own.engine.close();
  expect(sandbox.state).toBe("paused");
  await pausing;
  const next = await openTestEngine({ dataDir: own.dataDir });
  await next.engine.resume(sandbox.id);
  expect((await runIn(next.engine.get(sandbox.id), "echo alive")).output).toBe("alive\n");
  await next.dispose();
});

test("an engine that is closed in the middle of a fork finishes it first", async () => {
  const own = await openTestEngine();
  const parent = await own.engine.create({});
  const isPausing = stateReached(own.engine, parent.id, "pausing");
  const forking = own.engine.fork(parent.id);
  await isPausing;
  await own.engine.close();
  const { sandboxes } = await forking;
  const next = await openTestEngine({ dataDir: own.dataDir });
  const ids = [parent.id, ...sandboxes.map(({ id }) => id)];
  expect(next.engine.list().map(({ id, state }) => [id, state])).toEqual(
    expect.arrayContaining(ids.map((id) => [id, "running"])),
  );
  for (const id of ids) expect((await runIn(next.engine.get(id), "echo alive")).output).toBe("alive\n");
  await next.dispose();
});

test("events report each state, and the phases of the operation that led to it", async () => {
  const sandbox = await host.engine.create({});
  const reported: { to: string; phases: string[] }[] = [];
  const times: (PhaseTimes | undefined)[] = [];
  const stop = host.engine.events.listen((event) => {
    if (event.type === "state" && event.sandboxId === sandbox.id) {
      reported.push({ to: event.to, phases: Object.keys(event.phases ?? {}) });
      times.push(event.phases);
    }
  });
  const paused = await host.engine.pause(sandbox.id);
  const resumed = await host.engine.resume(sandbox.id);
  stop();
  // These are the phases in the results, and they add up to the whole.
  expect(times).toEqual([undefined, paused.phases, undefined, resumed.phases]);
  expect(reported).toEqual([
    { to: "pausing", phases: [] },
    { to: "paused", phases: ["freeze", "save", "layer", "verify"] },
    { to: "resuming", phases: [] },
    { to: "running", phases: ["verify", "restore", "firstAnswer"] },
  ]);
  await sandbox.kill();
});

/** Stops or continues all host processes of a sandbox, like a machine that has no time for them. */
async function signalContainer({ id }: Sandbox, signal: "SIGSTOP" | "SIGCONT"): Promise<void> {
  const group = await freezerOf(host.dataDir, id);
  const pids = (await readFile(join(group, "cgroup.procs"), "utf8")).trim().split("\n");
  for (const pid of pids) process.kill(Number(pid), signal);
}

test("a sandbox that is too slow to be paused runs on, and can be paused when it answers again", async () => {
  const sandbox = await host.engine.create({});
  const counting = await sandbox.spawn({ argv: ["bash", "-c", counter], stdin: true });
  const talk = new Conversation(counting);
  await counting.writeStdin("one\n");
  await talk.until(/1\n/);
  await signalContainer(sandbox, "SIGSTOP");
  try {
    await expect(host.engine.pause(sandbox.id)).rejects.toMatchObject({ code: "guest_silent", retryable: true });
    expect(sandbox.state).toBe("running");
  } finally {
    await signalContainer(sandbox, "SIGCONT");
  }
  await counting.writeStdin("two\n");
  expect(await talk.until(/\n/)).toBe("2\n");
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await counting.writeStdin("three\n");
  expect(await talk.until(/\n/)).toBe("3\n");
  await sandbox.kill();
});

/** Makes the next pause fail after memory was saved, and damages the saved memory. */
function breakPause(): void {
  atStep = async (step, id) => {
    if (step !== "pause: sealed") return;
    const [n = ""] = (await readdir(checkpointsOf(id))).toSorted((a, b) => Number(b) - Number(a));
    await writeFile(join(checkpointsOf(id), n, "memory/checkpoint.img"), "nothing that runsc knows");
    throw new Error("no space left on device");
  };
}

test("a sandbox that can be neither paused nor restored says what survives, and can be rolled back", async () => {
  const sandbox = await host.engine.create({});
  const counting = await sandbox.spawn({ argv: ["bash", "-c", counter], stdin: true }, { keep: true });
  const talk = new Conversation(counting);
  await counting.writeStdin("one\n");
  await talk.until(/1\n/);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await counting.writeStdin("two\n");
  await talk.until(/2\n/);
  breakPause();
  await expect(host.engine.pause(sandbox.id)).rejects.toMatchObject({
    code: "sandbox_ended",
    details: { survives: ["files", "checkpoints"] },
  });
  expect(sandbox.record).toMatchObject({ state: "failed", base: 1, survives: ["files", "checkpoints"] });

  await host.engine.rollback(sandbox.id, 1);
  expect((await runIn(sandbox, "cat words")).output).toBe("one\n");
  const again = sandbox.attach(counting.streamId, { stdoutBytes: 2, stderrBytes: 0 });
  await again.writeStdin("other\n");
  expect(await new Conversation(again).until(/\n/)).toBe("2\n");
  // From here on the sandbox works like any other.
  atStep = () => undefined;
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await sandbox.kill();
});

test("the files of a failed sandbox can be saved, including its last writes", async () => {
  const sandbox = await host.engine.create({});
  await runIn(sandbox, "echo one >words");
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await runIn(sandbox, "echo two >>words");
  breakPause();
  await expect(host.engine.pause(sandbox.id)).rejects.toMatchObject({ code: "sandbox_ended" });
  const path = join(host.dataDir, "saved-of-failed");
  const { signal } = new AbortController();
  const { base, trees, sizeBytes, sha256 } = await host.engine.saveFiles(sandbox.id, path, { signal });
  await sandbox.kill();
  const next = await host.engine.create({}, { files: { archive: async () => path, base, trees, sizeBytes, sha256 } });
  expect((await runIn(next, "cat words")).output).toBe("one\ntwo\n");
  await next.kill();
});
