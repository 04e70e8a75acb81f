import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SaxesParser } from "saxes";
import { afterAll, describe, expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import { RunReport, Verdict } from "../../src/models/report.ts";
import { parserFor } from "../../src/parsers/parsers.ts";
import { readRun } from "../../src/reports/stored-run.ts";
import { renderReport, type ReportFormatId, reportFormats, writeReports } from "../../src/reports/write-reports.ts";
import { hostile, instanceReport, writeRun } from "./sample-run.ts";

const directory = mkdtempSync(join(tmpdir(), "atoll-reports-"));
afterAll(() => rmSync(directory, { recursive: true }));

const everyVerdict = Verdict.options.map((verdict) => instanceReport({ id: `o__n-${verdict}`, verdict }));
const run = await readRun(writeRun(join(directory, "every"), everyVerdict));
const hostileReport = instanceReport({ id: `x__x-${hostile}`, verdict: "unresolved", reason: hostile, model: hostile });
hostileReport.failToPass.failure = [hostile];
const hostileRun = await readRun(writeRun(join(directory, "hostile"), [hostileReport]));

const text = async (of: typeof run, format: ReportFormatId): Promise<string> => (await renderReport(of, format)) ?? "";

describe("a run that is read from its journal", () => {
  test("has the reports of all instances that ended", () => {
    expect(RunReport.parse(run.report).instances.map(({ verdict }) => verdict)).toEqual(Verdict.options);
    expect(run.report).toMatchObject({ runId: "run-1", interrupted: false, counts: { resolved: 1, flaky: 1 } });
    expect(run.unfinished).toEqual([]);
  });

  test("may have been killed: what did not end is named, and a torn line is no obstacle", async () => {
    const folder = writeRun(join(directory, "killed"), everyVerdict.slice(0, 2), ["left-1"]);
    writeFileSync(join(folder, "events.ndjson"), '{"seq":99,"type":"instance.e', { flag: "a" });
    const killed = await readRun(folder);
    expect(killed.unfinished).toEqual(["left-1"]);
    expect(killed.report).toMatchObject({ interrupted: true, counts: { resolved: 1, partial: 1 } });
    expect(await text(killed, "tap")).toContain("1..3");
    expect(await text(killed, "markdown")).toContain("1 did not end: `left-1`.");
  });

  test("keeps what only the report of the run says", async () => {
    const folder = writeRun(join(directory, "written"), everyVerdict.slice(0, 1));
    const [path = ""] = await writeReports(await readRun(folder), ["json"]);
    const report = RunReport.parse(JSON.parse(readFileSync(path, "utf8")));
    writeFileSync(path, JSON.stringify({ ...report, client: "docker", durationMs: 77 }));
    expect((await readRun(folder)).report).toMatchObject({ client: "docker", durationMs: 77 });
  });

  test("a folder without a journal is no run", async () => {
    await expect(readRun(join(directory, "none"))).rejects.toMatchObject({ code: "not_found" });
  });
});

test("JSON and YAML have everything", async () => {
  expect(JSON.parse(await text(run, "json"))).toEqual(run.report);
  expect(parseYaml(await text(run, "yaml"))).toEqual(run.report);
  expect(parseYaml(await text(hostileRun, "yaml"))).toEqual(hostileRun.report);
});

/** Reads XML as strictly as the standard asks, and returns the attributes of its elements. */
function readXml(xml: string): { name: string; attributes: Record<string, string> }[] {
  const elements: { name: string; attributes: Record<string, string> }[] = [];
  const parser = new SaxesParser({ fragment: false });
  parser.on("opentag", ({ name, attributes }) => {
    elements.push({ name, attributes: attributes as Record<string, string> });
  });
  parser.write(xml).close();
  return elements;
}

describe("JUnit", () => {
  test("has a suite per instance, whose counts are right", async () => {
    const elements = readXml(await text(run, "junit"));
    const suites = elements.filter(({ name }) => name === "testsuite");
    expect(suites.map(({ attributes }) => attributes["errors"])).toEqual(
      Verdict.options.map((verdict) => (verdict === "env_invalid" || verdict === "infra_error" ? "1" : "0")),
    );
    const count = (name: string) => String(elements.filter((element) => element.name === name).length);
    expect(elements[0]?.attributes).toMatchObject({
      tests: count("testcase"),
      failures: count("failure"),
      errors: count("error"),
    });
  });

  test("is read by our own parser", async () => {
    const { tests } = parserFor("junit").parse({ text: "", results: await text(run, "junit") });
    expect(tests.get("o__n-resolved (model/1).verdict")).toBe("passed");
    expect(tests.get("o__n-timeout (model/1).verdict")).toBe("failed");
    expect(tests.get("o__n-infra_error (model/1).verdict")).toBe("error");
  });

  test("keeps hostile text where it belongs", async () => {
    const elements = readXml(await text(hostileRun, "junit"));
    expect(elements.map(({ name }) => name)).not.toContain("broken");
    const failure = elements.find(({ name }) => name === "failure");
    expect(failure?.attributes["message"]).toContain("]]><broken/>");
    expect(failure?.attributes["message"]).toContain("\n::error::");
  });
});

test("CTRF has a test per instance, whose counts are right", async () => {
  const { results, ...head } = JSON.parse(await text(run, "ctrf"));
  expect(head).toMatchObject({ reportFormat: "CTRF", specVersion: expect.stringMatching(/^\d+\.\d+\.\d+$/) });
  const { tests, passed, failed, skipped, pending, other, flaky, start, stop } = results.summary;
  expect([tests, passed, failed, other, flaky]).toEqual([10, 1, 6, 3, 1]);
  expect(passed + failed + skipped + pending + other).toBe(tests);
  expect(stop).toBeGreaterThanOrEqual(start);
  for (const entry of results.tests) {
    expect(entry).toMatchObject({ name: expect.any(String), status: expect.stringMatching(/^(passed|failed|other)$/) });
    expect([entry.duration, entry.start, entry.stop].every(Number.isInteger)).toBe(true);
  }
});

describe("TAP", () => {
  test("has a point per instance, and is read by our own parser", async () => {
    const { tests, suiteRan } = parserFor("tap").parse({ text: await text(run, "tap") });
    expect(suiteRan).toBe(true);
    expect(tests.size).toBe(10);
    expect(tests.get("o__n-resolved (model/1)")).toBe("passed");
    expect(tests.get("o__n-flaky (model/1)")).toBe("failed");
  });

  test("keeps hostile text in its line, and makes no directive of it", async () => {
    const lines = (await text(hostileRun, "tap")).trimEnd().split("\n");
    expect(lines[0]).toBe("TAP version 14");
    expect(lines.filter((line) => /^(?:not )?ok /.test(line))).toHaveLength(1);
    expect(lines[2]).toMatch(/^not ok 1 - .*\\# TODO broken/);
  });
});

describe("GitHub", () => {
  test("has a group per instance, and an annotation for what is not resolved", async () => {
    const lines = (await text(run, "github")).split("\n");
    const count = (start: string) => lines.filter((line) => line.startsWith(start)).length;
    expect([count("::group::"), count("::endgroup::"), count("::error "), count("::warning ")]).toEqual([10, 10, 6, 3]);
    expect(lines).toContain("::error file=t.py,title=o__n-timeout%3A timeout::It is timeout.");
  });

  test("runs no command that an output contains", async () => {
    const commands = (await text(hostileRun, "github")).split(/\r?\n|\r/).filter((line) => /^\s*::/.test(line));
    expect(commands.map((line) => /^::(\w+)/.exec(line)?.[1])).toEqual(["group", "endgroup", "error"]);
  });
});

describe("Markdown", () => {
  test("has a table and what failed", async () => {
    const markdown = await text(run, "markdown");
    expect(markdown).toContain("**1 of 10 resolved**");
    expect(markdown).toContain("| `o__n-resolved` | resolved | 1/1 | 1/1 | ");
    expect(markdown).toContain("- flaky: `t.py::fix`: passed with seed 1; failed with seed 0, 2");
  });

  test("keeps hostile text in its cell", async () => {
    const markdown = await text(hostileRun, "markdown");
    const [row = ""] = markdown.split("\n").filter((line) => line.startsWith("| `"));
    expect(row.match(/(?<!\\)\|/g)).toHaveLength(7);
    const outside = markdown.replaceAll(/(`+)(?!`)[^]*?[^`]\1(?!`)/g, "");
    expect(outside).not.toMatch(/(?<!\\)<|@broken|\]\(http/);
  });
});

test.for(["markdown", "github", "tap", "junit"] as const)("no control character gets out of %s", async (format) => {
  // oxlint-disable-next-line no-control-regex -- control characters are what must not be there
  expect(await text(hostileRun, format)).not.toMatch(/[\u0000-\u0008\u000B-\u001F\u007F\u202E]/);
});

describe("the tree of SWE-bench", () => {
  const target = join(directory, "tree");
  const read = (path: string) => JSON.parse(readFileSync(join(target, path), "utf8")) as Record<string, unknown>;
  const folder = (verdict: string) => `logs/run_evaluation/run-1/model__1/o__n-${verdict}`;

  test("has a report of each instance whose tests ran, as SWE-bench writes it", async () => {
    expect(await writeReports(run, ["swebench"], target)).toEqual([join(target, "model__1.run-1.json")]);
    expect(read(`${folder("resolved")}/report.json`)).toEqual({
      "o__n-resolved": {
        patch_is_None: false,
        patch_exists: true,
        patch_successfully_applied: true,
        resolved: true,
        infra_failure: false,
        tests_status: {
          FAIL_TO_PASS: { success: ["t.py::fix"], failure: [] },
          PASS_TO_PASS: { success: ["t.py::keep"], failure: [] },
          FAIL_TO_FAIL: { success: [], failure: [] },
          PASS_TO_FAIL: { success: [], failure: [] },
        },
      },
    });
    expect(existsSync(join(target, folder("infra_error"), "report.json"))).toBe(false);
  });

  test("has the output of the tests, the patch as it was, and what was run", () => {
    const content = (name: string) => readFileSync(join(target, folder("resolved"), name), "utf8");
    expect(content("test_output.txt")).toContain("2 passed");
    expect(content("patch.diff")).toBe("diff --git a/x b/x\r\n");
    expect(content("eval.sh")).toContain("'pytest -rA tests/test_test.py'");
    expect(content("run_instance.log")).toMatch(/checkout: cached in 300 ms\n/);
  });

  test("has a summary whose ids are apart and whose counts are theirs", () => {
    const summary = read("model__1.run-1.json") as Record<string, string[]> & Record<string, number>;
    for (const kind of ["completed", "resolved", "unresolved", "infra_failure", "empty_patch", "error"]) {
      expect(summary[`${kind}_instances`]).toBe(summary[`${kind}_ids`]?.length);
    }
    const parts = ["completed_ids", "empty_patch_ids", "error_ids", "incomplete_ids"].flatMap(
      (key) => summary[key] ?? [],
    );
    expect(parts.toSorted()).toEqual(summary["submitted_ids"]);
    expect(summary["resolved_ids"]).toEqual(["o__n-resolved"]);
    expect(summary["infra_failure_ids"]).toEqual(["o__n-env_invalid", "o__n-infra_error"]);
    expect(summary).toMatchObject({ schema_version: 2, total_instances: 10, submitted_instances: 10 });
  });

  test("stays in its folder, whatever models and instances are called", async () => {
    const report = instanceReport({ id: "../../outside", verdict: "resolved", model: "../.." });
    const folder = writeRun(join(directory, "paths"), [report]);
    const paths = join(directory, "paths-out");
    await writeReports(await readRun(folder), ["swebench"], paths);
    const written = readdirSync(paths, { recursive: true }).map(String);
    expect(written.filter((path) => path.endsWith("report.json"))).toHaveLength(1);
    expect(written.filter((path) => path.split("/").includes(".."))).toEqual([]);
    expect(readdirSync(directory)).not.toContain("outside");
  });
});

test("every format has a file of its own", async () => {
  const formats = Object.keys(reportFormats) as ReportFormatId[];
  const paths = await writeReports(run, formats, join(directory, "all"));
  expect(new Set(paths).size).toBe(formats.length);
  for (const path of paths) expect(existsSync(path)).toBe(true);
});
