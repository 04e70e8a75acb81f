import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import config from "../../vitest.config.ts";
import { driverTags } from "../support/driver-tags.ts";

const repositoryRoot = fileURLToPath(new URL("../..", import.meta.url));

/** Vitest looks for the tag in the text of a file. It is split off here, so that this file does not have the tag. */
const moduleTag = "@module-tag";

const driversModule = JSON.stringify(join(repositoryRoot, "tests", "support", "drivers.ts"));

/** Test files that cannot pass, as on a host without runsc. Their hooks fail, too. */
const files = {
  "vitest.config.ts": `
    import { driverTags } from ${JSON.stringify(join(repositoryRoot, "tests", "support", "driver-tags.ts"))};
    export default { test: { tags: driverTags(process.env) } };`,
  "whole-file.test.ts": `
    // ${moduleTag} gvisor
    import { beforeAll, test } from "vitest";
    beforeAll(() => { throw new Error("there is no runsc"); });
    test("boots", () => {});`,
  "groups.test.ts": `
    import { beforeAll, expect, test } from "vitest";
    import { describeDrivers, needsDriver } from ${driversModule};
    describeDrivers("a sandbox under %s", (driver) => {
      beforeAll(() => { if (driver === "gvisor") throw new Error("there is no runsc"); });
      test("lives", () => {});
    });
    test.for(["gvisor", "local"])("a row for %s", (driver, context) => {
      needsDriver(driver, context);
      expect(driver).toBe("local");
    });`,
};

let dir: string;

// The files are inside the repository, so that they find vitest.
beforeAll(async () => {
  await mkdir(join(repositoryRoot, ".cache"), { recursive: true });
  dir = await mkdtemp(join(repositoryRoot, ".cache", "drivers-"));
  await Promise.all(Object.entries(files).map(([name, text]) => writeFile(join(dir, name), text)));
});

afterAll(async () => {
  await rm(dir, { recursive: true });
});

async function runTests(env: NodeJS.ProcessEnv): Promise<{ exitCode: unknown; summary: unknown }> {
  const summaryPath = join(dir, "summary.json");
  const vitest = join(repositoryRoot, "node_modules", "vitest", "vitest.mjs");
  const reporter = join(repositoryRoot, "tools", "test-reporter.mjs");
  const exitCode = await new Promise((resolve) => {
    const args = [vitest, "run", "--root", dir, `--reporter=${reporter}`];
    const all = { PATH: process.env["PATH"], ATOLL_TEST_SUMMARY: summaryPath, ...env };
    execFile(process.execPath, args, { cwd: dir, env: all }, (error) => resolve(error?.code ?? 0));
  });
  return { exitCode, summary: JSON.parse(await readFile(summaryPath, "utf8")) };
}

test("tests of a driver that ATOLL_SKIP names are skipped with their hooks, and the reason is reported", async () => {
  const { exitCode, summary } = await runTests({ ATOLL_SKIP: "gvisor" });
  const reason = "ATOLL_SKIP names the driver gvisor";
  expect(summary).toEqual({
    passed: 2,
    failed: 0,
    skipped: [
      { name: "groups.test.ts > a sandbox under gvisor > lives", reason },
      { name: "groups.test.ts > a row for gvisor", reason },
      { name: "whole-file.test.ts > boots", reason },
    ],
  });
  expect(exitCode).toBe(0);
});

test.for(["", "local", "gvisors"])("tests fail without a runtime when ATOLL_SKIP is %j", async (skip) => {
  const { exitCode, summary } = await runTests({ ATOLL_SKIP: skip });
  expect(summary).toMatchObject({ passed: 2, failed: 3 });
  expect(exitCode).toBe(1);
});

test("the tests of this repository are skipped by the same tags", () => {
  expect(config.test?.tags).toEqual(driverTags(process.env));
});
