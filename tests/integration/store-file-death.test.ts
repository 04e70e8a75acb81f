import { createHash, randomBytes } from "node:crypto";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { FileObjectStore } from "@atoll/storage";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { StoreProcess, type Task } from "../support/store-process/store-process.ts";
import { makeDataDir } from "../support/test-root.ts";

let directory = "";
const source = { path: "", sizeBytes: 3 << 20, sha256: "" };

beforeAll(async () => {
  directory = await makeDataDir();
  const content = randomBytes(source.sizeBytes);
  source.path = join(directory, "source");
  source.sha256 = createHash("sha256").update(content).digest("hex");
  await writeFile(source.path, content);
});

afterAll(async () => {
  await rm(directory, { recursive: true, force: true });
});

/** Lists every file in the directory of a store. */
async function filesIn(path: string): Promise<string[]> {
  const entries = await readdir(path, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => !entry.isDirectory()).map((entry) => join(entry.parentPath, entry.name));
}

/** Expects two files per object after a sweep, its head and its content, and one file of the store that sweeps. */
async function expectNoLeftovers(path: string, store: FileObjectStore): Promise<void> {
  await store.sweep();
  let objects = 0;
  for await (const _info of store.list("")) objects += 1;
  expect(await filesIn(join(path, "objects"))).toHaveLength(2 * objects);
  expect(await filesIn(join(path, "writers"))).toHaveLength(1);
}

const before = { create: undefined, replace: "old", remove: "old" } as const;
const after = { create: "new", replace: "new", remove: undefined } as const;

describe.for(["create", "replace", "remove"] as const)("a process that dies at any step of a %s", (kind) => {
  test("leaves the state before or the state after, and the object can be changed further", async () => {
    const outcomes: (string | undefined)[] = [];
    for (let step = 0; ; step += 1) {
      const path = join(directory, `${kind}-${step}`);
      await mkdir(path);
      const store = await FileObjectStore.open(path);
      if (before[kind] !== undefined) await store.put("some/key", Buffer.from(before[kind]));
      const task: Task = { do: "change", key: "some/key", kind, content: "new", step };
      const end = await new StoreProcess(path, task).end();
      const got = await store.get("some/key");
      outcomes.push(got?.data.toString());
      await store.put("some/key", Buffer.from("next"), { if: got?.info.version ?? "absent" });
      expect((await store.get("some/key"))?.data.toString()).toBe("next");
      await expectNoLeftovers(path, store);
      await store.close();
      await rm(path, { recursive: true });
      if (end === "exit 0") break;
      expect(end).toBe("SIGKILL");
    }
    // There is one step at which the outcome changes: all earlier steps have the old one, all later steps the new one.
    const turn = outcomes.indexOf(after[kind]);
    expect(turn).toBeGreaterThan(0);
    expect(outcomes.slice(0, turn).filter((outcome) => outcome !== before[kind])).toEqual([]);
    expect(outcomes.slice(turn).filter((outcome) => outcome !== after[kind])).toEqual([]);
  });
});

test("a process that is killed while it writes loses nothing that it has reported", async () => {
  const path = join(directory, "write-on");
  await mkdir(path);
  const store = await FileObjectStore.open(path);
  for (const [round, until] of [3, 8, 15, 4].entries()) {
    const child = new StoreProcess(path, { do: "write-on", key: `round-${round}`, ...source });
    while ((child.facts.at(-1)?.number ?? 0) < until) {
      if ((await child.next()) === undefined) throw new Error(await child.end());
    }
    await child.kill();
    const reported = child.facts.at(-1)?.number ?? 0;
    const stored = Number((await store.get(`round-${round}/number`))?.data.toString());
    expect([reported, reported + 1]).toContain(stored);
    for (const key of ["big/0", "big/1"].map((name) => `round-${round}/${name}`)) {
      if ((await store.stat(key)) === undefined) continue;
      const copy = join(directory, "copy");
      await store.download(key, copy, source);
      await rm(copy);
    }
    await expectNoLeftovers(path, store);
  }
  await store.close();
});

test("an incomplete write of a living process is not swept, and one of a dead process is", async () => {
  const path = join(directory, "hold");
  await mkdir(path);
  const store = await FileObjectStore.open(path);
  await store.put("key", Buffer.from("kept"));
  const child = new StoreProcess(path, { do: "hold", key: "key", ...source });
  expect((await child.next())?.storedBytes).toBeGreaterThan(0);
  const withHalf = await filesIn(path);
  expect(await store.sweep()).toBe(0);
  expect(await filesIn(path)).toEqual(withHalf);
  // The incomplete write does not block other writes.
  await store.put("key", Buffer.from("changed"));
  await child.kill();
  expect(await store.sweep()).toBe(1);
  expect((await store.get("key"))?.data.toString()).toBe("changed");
  await expectNoLeftovers(path, store);
  await store.close();
});
