import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FileObjectStore } from "../../src/file/file-object-store.ts";
import { isEarlierRun, thisMachine } from "../../src/file/machine.ts";
import { Writer } from "../../src/file/writer.ts";
import { findLivingWriters } from "../../src/file/writers.ts";
import { makeScratchDirectory } from "../support/scratch-directory.ts";

const id = "0123456789abcdef01234567";
const elsewhere = "aaaaaaaaaaaa";
const otherBoot = "bbbbbbbbbbbb";

describe("writers of a store", () => {
  let directory = "";
  beforeEach(async () => {
    directory = await makeScratchDirectory();
  });
  afterEach(async () => {
    await rm(directory, { recursive: true });
  });

  test("a writer is alive from its start to its end", async () => {
    const writer = await Writer.start(directory);
    expect([...(await findLivingWriters(directory))]).toEqual([writer.id]);
    await writer.close();
    expect([...(await findLivingWriters(directory))]).toEqual([]);
    expect(await readdir(directory)).toEqual([]);
  });

  test.for(["", ".new"])(
    "a socket without a listener counts as dead and is removed, also with the ending %j",
    async (mark) => {
      await writeFile(join(directory, `${id}.${thisMachine().id}.${thisMachine().boot}${mark}`), "");
      expect([...(await findLivingWriters(directory))]).toEqual([]);
      expect(await readdir(directory)).toEqual([]);
    },
  );

  test("a writer of another machine counts as alive, because it cannot be asked", async () => {
    const name = `${id}.${elsewhere}.${otherBoot}`;
    await writeFile(join(directory, name), "");
    expect([...(await findLivingWriters(directory))]).toEqual([id]);
    expect(await readdir(directory)).toEqual([name]);
  });

  test("files that are not writers' sockets are left alone", async () => {
    await writeFile(join(directory, "README"), "");
    expect([...(await findLivingWriters(directory))]).toEqual([]);
    expect(await readdir(directory)).toEqual(["README"]);
  });

  test("a sweep keeps bytes of a writer elsewhere and removes those of a dead one", async () => {
    const store = await FileObjectStore.open(directory);
    const bytes = join(directory, "objects", "key~", `${id}-1`);
    const name = join(directory, "writers", `${id}.${elsewhere}.${otherBoot}`);
    await mkdir(join(directory, "objects", "key~"));
    await writeFile(bytes, "half");
    await writeFile(name, "");
    expect(await store.sweep()).toBe(0);
    await rm(name);
    expect(await store.sweep()).toBe(1);
    expect(await readdir(join(directory, "objects"))).toEqual([]);
    await store.close();
  });
});

describe("a boot of a machine", () => {
  const here = { id: "111111111111", boot: "222222222222" };

  test.for([
    { machine: here, isEarlier: false, because: "it is this one" },
    { machine: { ...here, boot: otherBoot }, isEarlier: true, because: "it is the same machine with another start" },
    { machine: { id: elsewhere, boot: otherBoot }, isEarlier: false, because: "it is another machine" },
  ])("is earlier: $isEarlier, because $because", ({ machine, isEarlier }) => {
    expect(isEarlierRun(machine, here)).toBe(isEarlier);
  });

  test("does not count as earlier where machines have no names", () => {
    const nameless = "0".repeat(12);
    expect(isEarlierRun({ id: nameless, boot: otherBoot }, { id: nameless, boot: here.boot })).toBe(false);
  });
});
