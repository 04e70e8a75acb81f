import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

const repositoryRoot = fileURLToPath(new URL("../..", import.meta.url));

const files = {
  "vitest.config.mjs": "export default {};",
  "mixed.test.mjs": `
    import { describe, expect, test } from "vitest";
    test("passes", () => {});
    test("fails", () => { expect(1).toBe(2); });
    test("lacks", (context) => { context.skip("no docker here"); });
    test.skip("rests", () => {});
    test.todo("waits");`,
  "broken-file.test.mjs": `throw new Error("does not load");`,
  "broken-group.test.mjs": `
    import { beforeAll, describe, test } from "vitest";
    describe("group", () => {
      beforeAll(() => { throw new Error("no ground"); });
      test("stands", () => {});
    });`,
};

let dir: string;

// The files are inside the repository, so that they find vitest.
beforeAll(async () => {
  await mkdir(join(repositoryRoot, ".cache"), { recursive: true });
  dir = await mkdtemp(join(repositoryRoot, ".cache", "reporter-"));
  await Promise.all(Object.entries(files).map(([name, text]) => writeFile(join(dir, name), text)));
});

afterAll(async () => {
  await rm(dir, { recursive: true });
});

test("files and groups that throw count as failed, and each skipped test has a reason", async () => {
  const summaryPath = join(dir, "summary.json");
  const vitest = join(repositoryRoot, "node_modules", "vitest", "vitest.mjs");
  const reporter = join(repositoryRoot, "tools", "test-reporter.mjs");
  const exitCode = await new Promise((resolve) => {
    const args = [vitest, "run", "--root", dir, `--reporter=${reporter}`];
    const env = { PATH: process.env["PATH"], ATOLL_TEST_SUMMARY: summaryPath };
    execFile(process.execPath, args, { cwd: dir, env }, (error) => resolve(error?.code ?? 0));
  });
  expect(exitCode).toBe(1);
  const summary = JSON.parse(await readFile(summaryPath, "utf8"));
  expect(summary).toMatchObject({ passed: 1, failed: 3 });
  expect(summary.skipped).toEqual(
    expect.arrayContaining([
      { name: "mixed.test.mjs > lacks", reason: "no docker here" },
      { name: "mixed.test.mjs > rests", reason: "no reason given" },
      { name: "mixed.test.mjs > waits", reason: "to be written" },
      { name: "broken-group.test.mjs > group > stands", reason: "a hook or an enclosing group failed" },
    ]),
  );
  expect(summary.skipped).toHaveLength(4);
});
