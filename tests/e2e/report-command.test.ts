import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { reportFormats } from "@atoll/runner";
import { afterAll, expect, test } from "vitest";
import { instanceReport, writeRun } from "../../packages/runner/test/reports/sample-run.ts";
import { runAtoll } from "../support/atoll-command.ts";

const directory = mkdtempSync(join(tmpdir(), "atoll-report-"));
afterAll(() => rmSync(directory, { recursive: true }));

const run = writeRun(join(directory, "run"), [
  instanceReport({ id: "a__a-1", verdict: "resolved" }),
  instanceReport({ id: "b__b-2", verdict: "unresolved" }),
]);

const report = (words: readonly string[], env = {}) => runAtoll(undefined, ["report", ...words], { env });

test("a run becomes a page, and its path is printed", async () => {
  const path = join(run, "report.html");
  expect(await report([run])).toEqual({ exitCode: 0, stdout: `${path}\n`, stderr: "" });
  expect(readFileSync(path, "utf8")).toContain("<title>run-1: 1 of 2 resolved</title>");
});

test("every format is made by its name, into a directory", async () => {
  const words = Object.keys(reportFormats).flatMap((name) => ["--format", name]);
  const output = join(directory, "reports");
  const { exitCode, stdout } = await report([run, ...words, "--output", output, "--json"]);
  expect(exitCode).toBe(0);
  const { paths } = JSON.parse(stdout) as { paths: string[] };
  expect(paths).toHaveLength(Object.keys(reportFormats).length);
  for (const path of paths) expect(readFileSync(path, "utf8")).not.toBe("");
});

test("one format is printed", async () => {
  const { stdout } = await report([run, "--format", "tap", "--output", "-"]);
  expect(stdout).toMatch(/^TAP version 14\n1\.\.2\nok 1 - a__a-1 /);
});

test("GitHub gets its annotations and the summary of the job", async () => {
  const summary = join(directory, "summary.md");
  const { stdout } = await report([run, "--format", "github"], { GITHUB_STEP_SUMMARY: summary });
  expect(stdout).toContain("::error file=t.py,title=b__b-2%3A unresolved::");
  expect(readFileSync(summary, "utf8")).toContain("**1 of 2 resolved**");
});

test.for([
  [["--format", "pdf"], 2, "Use one of json, yaml,"],
  [["--format", "tap", "--format", "junit", "--output", "-"], 2, "Name one format"],
  [["--format", "swebench", "--output", "-"], 2, "it is many files"],
] as const)("%j is refused with the way out", async ([words, code, hint]) => {
  const { exitCode, stderr } = await report([run, ...words]);
  expect(exitCode).toBe(code);
  expect(stderr).toContain(hint);
});

test("a directory without a run is named", async () => {
  const { exitCode, stderr } = await report([directory]);
  expect(exitCode).toBe(1);
  expect(stderr).toContain("it has no events.ndjson");
});
