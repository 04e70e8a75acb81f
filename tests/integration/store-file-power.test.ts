import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { FileObjectStore } from "@atoll/storage";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Tree, treesAfterPowerLoss } from "../support/store-process/power-loss.ts";
import { StoreProcess } from "../support/store-process/store-process.ts";
import { makeDataDir } from "../support/test-root.ts";

let directory = "";

beforeAll(async () => {
  directory = await makeDataDir();
});

afterAll(async () => {
  await rm(directory, { recursive: true, force: true });
});

async function readTree(root: string): Promise<Tree> {
  const tree = new Map<string, Buffer | undefined>([[root, undefined]]);
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isDirectory()) tree.set(path, undefined);
    if (entry.isFile()) tree.set(path, await readFile(path));
  }
  return tree;
}

/** Opens a store on this tree and returns what it says about the key. */
async function readFrom(tree: Tree, root: string): Promise<string> {
  await rm(root, { recursive: true, force: true });
  const paths = [...tree.keys()].toSorted((one, two) => one.length - two.length);
  for (const path of paths) {
    const content = tree.get(path);
    if (content === undefined) await mkdir(path, { recursive: true });
    else await writeFile(path, content);
  }
  const store = await FileObjectStore.open(root);
  return (await store.get("some/key"))?.data.toString() ?? "nothing";
}

const cases = [
  { kind: "create", before: "nothing", after: "new" },
  { kind: "replace", before: "old", after: "new" },
  { kind: "remove", before: "old", after: "nothing" },
] as const;

describe.for(cases)("a loss of power during a $kind", ({ kind, before, after }) => {
  test("leaves the state before or after, and the state after if the operation had completed", async () => {
    const root = join(directory, kind);
    const store = await FileObjectStore.open(root);
    if (before !== "nothing") await store.put("some/key", Buffer.from(before));
    await store.close();
    const found = await readTree(root);

    const child = new StoreProcess(root, { do: "record", key: "some/key", kind, content: "new" });
    expect(await child.end()).toBe("exit 0");
    const steps = child.facts.flatMap((fact) => fact.steps ?? []);
    expect(steps.length).toBeGreaterThan(3);

    for (let done = 0; done <= steps.length; done += 1) {
      const seen = new Set<string>();
      for (const tree of treesAfterPowerLoss(found, steps, done)) seen.add(await readFrom(tree, root));
      const allowed = done === steps.length ? [after] : [before, after];
      expect({ done, seen: [...seen].filter((content) => !allowed.some((each) => each === content)) }).toEqual({
        done,
        seen: [],
      });
    }
  });
});
