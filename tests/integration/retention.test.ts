import { access, mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

/** Pauses it so many times, each time with another word in `note`. */
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

test("no more checkpoints stay than the policy keeps, and what stays can be gone back to", async () => {
  const host = await openTestEngine({ keepCheckpoints: 2 });
  try {
    const { engine, dataDir } = host;
    const { id } = await engine.create({});
    await pauseOften(host, id, ["one", "two", "three", "four"]);
    expect(await numbersOf(host, id)).toEqual([3, 4]);
    // Only what is there has a directory: what is gone leaves no trace, however often it is paused.
    expect((await readdir(join(dataDir, "sandboxes", id, "checkpoints"))).toSorted()).toEqual(["3", "4"]);
    await engine.rollback(id, 3);
    expect((await engine.get(id).files.readAll("/home/user/note")).toString()).toBe("three");
    // It stands on the third now, which stays whatever comes after it.
    expect(await numbersOf(host, id)).toEqual([3, 4]);
    await pauseOften(host, id, ["five", "six"]);
    expect(await numbersOf(host, id)).toEqual([5, 6]);
    await engine.resume(id);
    expect((await engine.get(id).files.readAll("/home/user/note")).toString()).toBe("six");
  } finally {
    await host.dispose();
  }
});

test("a rollback to the oldest one that is kept finds it, although it makes one more", async () => {
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

test("young ones stay, however many they are", async () => {
  const host = await openTestEngine({ keepCheckpoints: 1, keepCheckpointsForMs: 3_600_000 });
  try {
    const { id } = await host.engine.create({});
    await pauseOften(host, id, ["one", "two", "three"]);
    expect(await numbersOf(host, id)).toEqual([1, 2, 3]);
  } finally {
    await host.dispose();
  }
});

test("an engine that opens retires what the one before kept, and clears up what it died over", async () => {
  const before = await openTestEngine();
  const { id } = await before.engine.create({});
  await pauseOften(before, id, ["one", "two", "three"]);
  await before.engine.close();
  // As a server leaves it that dies after the first step of retiring, and one that had nothing but the last to retire.
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
    // The number of one that is gone is not given again.
    expect((await host.engine.pause(id)).checkpoint).toBe(8);
  } finally {
    await host.dispose();
  }
});

test("a checkpoint that copies are being made of stays until they have it", async () => {
  const host = await openTestEngine({ keepCheckpoints: 1 });
  try {
    const { engine, dataDir } = host;
    const parent = await engine.create({});
    await pauseOften(host, parent.id, ["one"]);
    const image = join(dataDir, "sandboxes", parent.id, "checkpoints/1/memory/checkpoint.img");
    const whilePaused = async (): Promise<void> => {
      // Somebody else moves on with the parent meanwhile.
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
    // The layers that the copy stands on stay for it.
    expect((await sandboxes[0]?.files.readAll("/home/user/note"))?.toString()).toBe("one");
  } finally {
    await host.dispose();
  }
});
