// @module-tag gvisor
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";
import { isSandboxError, type SandboxId, type PhaseTimes } from "@atoll/protocol";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

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

const sumOf = (phases: PhaseTimes): number => Object.values(phases).reduce((sum, ms) => sum + ms, 0);

describe("fork", () => {
  test("the parent and three copies go on from the same point, independent of each other", async () => {
    const { engine } = host;
    const parent = await engine.create({ labels: { of: "four" } });
    const counting = await parent.spawn({ argv: ["bash", "-c", counter], stdin: true });
    const talk = new Conversation(counting);
    await counting.writeStdin("a\nb\n");
    await talk.until(/2\n/);

    const { sandboxes, checkpoint, phases, totalMs } = await engine.fork(parent.id, { count: 3 });
    expect(Object.keys(phases)).toEqual(["pause", "verify", "caller", "start"]);
    expect(sumOf(phases)).toBeCloseTo(totalMs, 3);
    expect(sandboxes).toHaveLength(3);
    expect(parent.state).toBe("running");
    await counting.writeStdin("parent\n");
    expect(await talk.until(/\n/)).toBe("3\n");
    for (const [index, copy] of sandboxes.entries()) {
      expect(copy.state).toBe("running");
      expect(copy.record.labels).toEqual({ of: "four" });
      const process = copy.attach(counting.streamId, { stdoutBytes: 4, stderrBytes: 0 });
      await process.writeStdin(`copy${index}\n`);
      expect(await new Conversation(process).until(/\n/)).toBe("3\n");
      expect((await runIn(copy, "cat words; hostname")).output).toBe(`a\nb\ncopy${index}\n${copy.id}\n`);
    }
    expect((await runIn(parent, "cat words; hostname")).output).toBe(`a\nb\nparent\n${parent.id}\n`);

    // The memory image exists once, for all of them.
    const image = join(
      host.dataDir,
      "sandboxes",
      parent.id,
      "checkpoints",
      String(checkpoint),
      "memory/checkpoint.img",
    );
    expect((await stat(image)).nlink).toBe(4);
    // The copies do not need their parent any more.
    await parent.kill();
    const [first, second] = sandboxes;
    if (first === undefined || second === undefined) throw new Error("The fork should have three copies");
    await engine.pause(first.id);
    await engine.resume(first.id);
    expect((await runIn(first, "cat words")).output).toBe("a\nb\ncopy0\n");
    expect((await runIn(second, "cat words")).output).toBe("a\nb\ncopy1\n");
    await Promise.all(sandboxes.map((copy) => copy.kill()));
  });

  test("copies get different random numbers", async () => {
    const parent = await host.engine.create({});
    const { sandboxes } = await host.engine.fork(parent.id, { count: 2 });
    const drawn = await Promise.all(
      [parent, ...sandboxes].map(async (sandbox) => (await runIn(sandbox, "od -An -tx8 -N32 /dev/urandom")).output),
    );
    expect(new Set(drawn).size).toBe(3);
    await Promise.all([parent, ...sandboxes].map((sandbox) => sandbox.kill()));
  });

  test("each copy has a new boot id and keeps it, and the parent keeps its own", async () => {
    const bootIdOf = async (sandbox: Sandbox): Promise<string> => {
      const { output } = await runIn(sandbox, "cat /proc/sys/kernel/random/boot_id");
      expect(output).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n$/);
      return output;
    };
    const { engine } = host;
    const parent = await engine.create({});
    const first = await bootIdOf(parent);
    const [copy] = (await engine.fork(parent.id)).sandboxes;
    if (copy === undefined) throw new Error("The fork should have one copy");
    const second = await bootIdOf(copy);
    const [copyOfCopy] = (await engine.fork(copy.id)).sandboxes;
    if (copyOfCopy === undefined) throw new Error("The fork should have one copy");
    const third = await bootIdOf(copyOfCopy);
    expect(new Set([first, second, third]).size).toBe(3);
    await engine.pause(copyOfCopy.id);
    await engine.resume(copyOfCopy.id);
    expect(await Promise.all([parent, copy, copyOfCopy].map(bootIdOf))).toEqual([first, second, third]);
    // The boot id is mounted once, and the file that is mounted is visible nowhere else.
    expect((await runIn(copyOfCopy, "grep -c boot_id /proc/mounts; ls -A /dev | grep boot || true")).output).toBe(
      "1\n",
    );
    await Promise.all([parent, copy, copyOfCopy].map((sandbox) => sandbox.kill()));
  });

  test("a paused sandbox can be forked and stays paused", async () => {
    const parent = await host.engine.create({});
    await parent.files.write("/home/user/note", "kept");
    await host.engine.pause(parent.id);
    const { sandboxes } = await host.engine.fork(parent.id);
    expect(parent.state).toBe("paused");
    expect((await sandboxes[0]?.files.readAll("/home/user/note"))?.toString()).toBe("kept");
    await Promise.all([parent, ...sandboxes].map((sandbox) => sandbox.kill()));
  });
});

test("a fork whose parent does not resume leaves no copy, and the parent can be resumed later", async () => {
  const parent = await host.engine.create({});
  await parent.files.write("/home/user/note", "kept");
  atStep = (step, id) => {
    if (step === "resume: verified" && id === parent.id) throw new Error("no space left on device");
  };
  await expect(host.engine.fork(parent.id, { count: 2 })).rejects.toThrow("no space left on device");
  expect(host.engine.list().map(({ id, state }) => [id, state])).toEqual([[parent.id, "paused"]]);
  atStep = () => undefined;
  await host.engine.resume(parent.id);
  expect((await parent.files.readAll("/home/user/note")).toString()).toBe("kept");
  await parent.kill();
});

describe("rollback", () => {
  test("restores the memory and files of the checkpoint, and the state before it can be restored as well", async () => {
    const { engine } = host;
    const sandbox = await engine.create({});
    const first = await sandbox.spawn({ argv: ["bash", "-c", counter], stdin: true }, { keep: true });
    const talk = new Conversation(first);
    await first.writeStdin("one\n");
    await talk.until(/1\n/);
    await engine.pause(sandbox.id);
    await engine.resume(sandbox.id);
    await first.writeStdin("two\n");
    await talk.until(/2\n/);
    await sandbox.files.remove("/home/user/words");

    const paused = new Promise<PhaseTimes | undefined>((resolve) => {
      engine.events.listen((event) => {
        if (event.type === "state" && event.sandboxId === sandbox.id && event.to === "paused") resolve(event.phases);
      });
    });
    const { phases, totalMs } = await engine.rollback(sandbox.id, 1);
    // The state before the rollback is saved within that time.
    const { verify, ...saving } = (await paused) ?? {};
    expect(Object.keys(phases)).toEqual(["verify", ...Object.keys(saving), "caller", "restore", "firstAnswer"]);
    expect(phases).toMatchObject(saving);
    expect(phases["verify"]).toBeGreaterThan(verify ?? 0);
    expect(sumOf(phases)).toBeCloseTo(totalMs, 3);
    expect(sandbox.state).toBe("running");
    expect((await engine.checkpoints(sandbox.id)).map(({ n, parent }) => [n, parent])).toEqual([
      [1, null],
      [2, 1],
    ]);
    expect((await runIn(sandbox, "cat words")).output).toBe("one\n");
    const again = sandbox.attach(first.streamId, { stdoutBytes: 2, stderrBytes: 0 }, { keep: true });
    await again.writeStdin("other\n");
    expect(await new Conversation(again).until(/\n/)).toBe("2\n");
    expect((await runIn(sandbox, "cat words")).output).toBe("one\nother\n");

    await engine.rollback(sandbox.id, 2);
    expect((await runIn(sandbox, "cat words 2>&1 || true")).output).toMatch(/No such file/);
    const later = sandbox.attach(first.streamId, { stdoutBytes: 4, stderrBytes: 0 });
    await later.writeStdin("three\n");
    expect(await new Conversation(later).until(/\n/)).toBe("3\n");
    await sandbox.kill();
  });

  test("removing a checkpoint keeps a layer that a fork needs, and its number is not used again", async () => {
    const { engine, dataDir } = host;
    const sandbox = await engine.create({});
    await engine.pause(sandbox.id);
    await engine.resume(sandbox.id);
    await sandbox.files.write("/home/user/note", "second");
    await engine.pause(sandbox.id);
    const { sandboxes } = await engine.fork(sandbox.id);
    await engine.rollback(sandbox.id, 1);
    const refused: unknown = await engine.removeCheckpoint(sandbox.id, 1).catch((reason: unknown) => reason);
    expect(isSandboxError(refused, "in_use")).toBe(true);
    expect(await engine.removeCheckpoint(sandbox.id, 2)).toBe(true);
    expect(await engine.removeCheckpoint(sandbox.id, 2)).toBe(false);
    const { checkpoint } = await engine.pause(sandbox.id);
    expect(checkpoint).toBe(3);
    expect((await sandboxes[0]?.files.readAll("/home/user/note"))?.toString()).toBe("second");
    expect(await readdir(join(dataDir, "layers"))).toContain(`${sandbox.id}-2`);
    await Promise.all(sandboxes.map((copy) => copy.kill()));
    expect(await readdir(join(dataDir, "layers"))).not.toContain(`${sandbox.id}-2`);
    await sandbox.kill();
  });

  test("to a missing checkpoint is refused, and the sandbox runs on", async () => {
    const sandbox = await host.engine.create({});
    const error: unknown = await host.engine.rollback(sandbox.id, 4).catch((reason: unknown) => reason);
    expect(isSandboxError(error, "not_found")).toBe(true);
    expect(sandbox.state).toBe("running");
    await sandbox.kill();
  });
});
