import { readdir, rm } from "node:fs/promises";
import { afterAll, describe, expect, test } from "vitest";
import { hostLeftovers } from "../support/host-leftovers.ts";
import { testRoot, usedDataDirs } from "../support/test-root.ts";

/** Runs after every other project. */
describe("after all tests", () => {
  afterAll(async () => {
    await rm(testRoot(), { recursive: true, force: true });
  });

  test("no process, mount, cgroup or sandbox directory of any test is left on the host", async () => {
    const dirs = await usedDataDirs();
    const nothing = { processes: [], mounts: [], cgroups: [], sandboxes: [] };
    const leftovers = await Promise.all(dirs.map(async (dir) => [dir, await hostLeftovers(dir)] as const));
    expect(leftovers.filter(([, left]) => JSON.stringify(left) !== JSON.stringify(nothing))).toEqual([]);
  });

  test("every data directory was removed by the test that made it", async () => {
    const dirs = await usedDataDirs();
    const left = await Promise.all(
      dirs.map(async (dir) => {
        const files = await readdir(dir, { recursive: true }).catch(() => undefined);
        return files === undefined ? [] : [[dir, ...files.slice(0, 20)]];
      }),
    );
    expect(left.flat()).toEqual([]);
  });
});
