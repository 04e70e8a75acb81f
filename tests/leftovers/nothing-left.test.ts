import { readdir, rm } from "node:fs/promises";
import { afterAll, describe, expect, test } from "vitest";
import { allLeftovers } from "../support/host-leftovers.ts";
import { testRoot, usedDataDirs } from "../support/test-root.ts";

/** This project runs after every other project. */
describe("after all tests", () => {
  afterAll(async () => {
    await rm(testRoot(), { recursive: true, force: true });
  });

  test("no process, mount, cgroup or sandbox directory of any test is left on the host", async () => {
    expect(await allLeftovers(await usedDataDirs())).toEqual({});
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
