import { access, mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

/** Pauses a sandbox once per word, with that word in the file `note`. */
async function pauseOften({ engine }: TestEngine, id: SandboxId, words: readonly string[]): Promise<void> {
  const sandbox = engine.get(id);
  for (const word of words) {
    if (sandbox.state === "paused") await engine.resume(id);
    await sandbox.files.write("/home/user/note", word);
    await engine.pause(id);
  }
}

const numbersOf = async ({ engine }: TestEngine, id: SandboxId): Promise<number[]> =>
  (await engine.checkpoints(id)).map(({ n }) => n);

test("only as many checkpoints stay as the policy keeps, and a rollback to those works", async () => {
  const host = await openTestEngine({ keepCheckpoints: 2 });
  try {
    const { engine, dataDir } = host;
    const { id } = await engine.create({});
    await pauseOften(host, id, ["one", "two", "three", "four"]);
    expect(await numbersOf(host, id)).toEqual([3, 4]);
    // Only existing checkpoints have a directory, so the number of directories does not grow with the pauses.
    expect((await readdir(join(dataDir, "sandboxes", id, "checkpoints"))).toSorted()).toEqual(["3", "4"]);
    await engine.rollback(id, 3);
    expect((await engine.get(id).files.readAll("/home/user/note")).toString()).toBe("three");
    // The sandbox is now based on the third checkpoint, which stays whatever follows.
    expect(await numbersOf(host, id)).toEqual([3, 4]);
    await pauseOften(host, id, ["five", "six"]);
    expect(await numbersOf(host, id)).toEqual([5, 6]);
    await engine.resume(id);
    expect((await engine.get(id).files.readAll("/home/user/note")).toString()).toBe("six");
  } finally {
    await host.dispose();
  }
});

test("a rollback to the oldest kept checkpoint works, although it adds one", async () => {
  const host = await openTestEngine({ keepCheckpoints: 2 });
  try {
    const { engine } = host;
    const { id } = await engine.create({});
    await pauseOften(host, id, ["one", "two"]);
    await engine.resume(id);
    await engine.rollback(id, 1);
    expect((await engine.get(id).files.readAll("/home/user/note")).toString()).toBe("one");
    expect(await numbersOf(host, id)).toEqual([1, 2, 3]);
  } finally {
    await host.dispose();
  }
});

test("young checkpoints stay, however many there are", async () => {
  const host = await openTestEngine({ keepCheckpoints: 1, keepCheckpointsForMs: 3_600_000 });
  try {
    const { id } = await host.engine.create({});
    await pauseOften(host, id, ["one", "two", "three"]);
    expect(await numbersOf(host, id)).toEqual([1, 2, 3]);
  } finally {
    await host.dispose();
  }
});

test("an engine retires checkpoints of the previous one when it opens, and finishes interrupted removals", async () => {
  const before = await openTestEngine();
  const { id } = await before.engine.create({});
  await pauseOften(before, id, ["one", "two", "three"]);
  await before.engine.close();
  // A server that dies after the first step of retiring leaves this, and so does one that had only the last step to do.
  const checkpoints = join(before.dataDir, "sandboxes", id, "checkpoints");
  for (const name of ["2.gone", "7.gone"]) {
    await mkdir(join(checkpoints, name, "memory"), { recursive: true });
    await writeFile(join(checkpoints, name, "memory/checkpoint.img"), "left");
  }

  const host = await openTestEngine({ dataDir: before.dataDir, keepCheckpoints: 1 });
  try {
    expect(await numbersOf(host, id)).toEqual([3]);
    expect((await readdir(checkpoints)).toSorted()).toEqual(["3", "7.gone"]);
    expect(await readdir(join(checkpoints, "7.gone"))).toEqual([]);
    await host.engine.resume(id);
    expect((await runIn(host.engine.get(id), "cat note")).output).toBe("three");
    // The number of a removed checkpoint is not used again.
    expect((await host.engine.pause(id)).checkpoint).toBe(8);
  } finally {
    await host.dispose();
  }
});

test("a checkpoint stays while copies are made of it", async () => {
  const host = await openTestEngine({ keepCheckpoints: 1 });
  try {
    const { engine, dataDir } = host;
    const parent = await engine.create({});
    await pauseOften(host, parent.id, ["one"]);
    const image = join(dataDir, "sandboxes", parent.id, "checkpoints/1/memory/checkpoint.img");
    const whilePaused = async (): Promise<void> => {
      // Another client resumes and changes the parent during the fork.
      await engine.resume(parent.id);
      await pauseOften(host, parent.id, ["two"]);
      await access(image);
      await expect(engine.removeCheckpoint(parent.id, 1)).rejects.toMatchObject({ code: "in_use" });
    };
    const { sandboxes } = await engine.fork(parent.id, { whilePaused });
    expect((await sandboxes[0]?.files.readAll("/home/user/note"))?.toString()).toBe("one");
    expect(await numbersOf(host, parent.id)).toEqual([1, 2]);
    await pauseOften(host, parent.id, ["three"]);
    expect(await numbersOf(host, parent.id)).toEqual([3]);
    // The layers below the copy stay for it.
    expect((await sandboxes[0]?.files.readAll("/home/user/note"))?.toString()).toBe("one");
  } finally {
    await host.dispose();
  }
});
