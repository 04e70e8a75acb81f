import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { RunEventBody } from "../../src/journal/events.ts";
import type { CommandResult } from "../../src/models/command.ts";
import type { InstanceReport, StageName, StageResult, TestStatus, Verdict } from "../../src/models/report.ts";

const startMs = Date.parse("2026-01-02T03:04:05.000Z");

/** What breaks out of a report if it is not escaped: of HTML, XML, Markdown, workflow commands and terminals. */
export const hostile = [
  "</script><script>document.title='broken'</script>",
  "<img src=x onerror=\"document.title='broken'\">",
  "]]><broken/>",
  "\n::error::broken\r\n%0A::set-output name=x::broken",
  "| broken | `broken` [broken](https://example.test) @broken",
  "\u001B[2J\u001B]0;broken\u0007\u0000\uFFFF\uD800 \u202Enekorb",
  "# TODO broken",
].join(" ");

const output = (path: string, head: string, more: Partial<CommandResult["stdout"]> = {}): CommandResult["stdout"] => ({
  path,
  bytes: Buffer.byteLength(head),
  dropped: 0,
  sha256: "0".repeat(64),
  head,
  tail: "",
  ...more,
});

function command(label: string, name: string, code: number, text: string, atMs: number): CommandResult {
  return {
    argv: ["bash", "-c", `pytest -rA tests/test_${name}.py`],
    cwd: "/testbed",
    env: {},
    user: "user",
    startedAt: new Date(startMs + atMs).toISOString(),
    durationMs: 900,
    end: { kind: "exit", code },
    stdout: output(`logs/${label}/${name}.stdout`, text),
    stderr: output(`logs/${label}/${name}.stderr`, name === "baseline" ? "a warning\n" : ""),
  };
}

interface Given {
  id: string;
  verdict: Verdict;
  reason?: string;
  model?: string;
  tests?: Record<string, TestStatus>;
  log?: string;
}

/** The label of an item, which is a file name. */
const labelOf = (id: string): string => id.replaceAll(/[^A-Za-z0-9._@-]+/g, "__");

/** A report of an instance with the stages, test runs and logs that its verdict has. */
export function instanceReport({ id, verdict, reason, model = "model/1", tests, log }: Given): InstanceReport {
  const isGood = verdict === "resolved";
  const text = log ?? "PASSED t.py::keep\n==== 2 passed in 0.01s ====\n";
  const run = command(labelOf(id), "test", isGood ? 0 : 1, text, 5000);
  const baseline = command(labelOf(id), "baseline", 1, "FAILED t.py::fix - AssertionError\n", 3000);
  let atMs = 0;
  const stage = (name: StageName, ms: number, commands: CommandResult[] = [], changes = {}): StageResult => {
    const result = {
      stage: name,
      status: "ok" as const,
      startedAt: new Date(startMs + atMs).toISOString(),
      durationMs: ms,
      tries: 1,
      commands,
      ...changes,
    };
    atMs += ms;
    return result;
  };
  const results = tests ?? { "t.py::fix": isGood ? "passed" : "failed", "t.py::keep": "passed" };
  const attempt = { seed: 0, parser: "pytest", suiteRan: true, canary: "failed" as const };
  return {
    schemaVersion: 1,
    id,
    repo: "owner/name",
    model,
    key: "k",
    verdict,
    reason: reason ?? (isGood ? "1 of 1 tests are fixed and 1 of 1 keep passing." : `It is ${verdict}.`),
    patchExists: true,
    patchApplied: true,
    stages: [
      stage("resolve", 20),
      stage("checkout", 300, [], { status: "cached" }),
      stage("env", 1800),
      stage("baseline", 1200, [baseline]),
      stage("apply", 150),
      stage("test", 1000, [run], isGood ? {} : { status: "failed", reason: "a test failed" }),
      stage("teardown", 90),
    ],
    attempts: [
      { ...attempt, kind: "baseline", command: baseline, tests: { "t.py::fix": "failed", "t.py::keep": "passed" } },
      { ...attempt, kind: "prediction", command: run, tests: results },
    ],
    fixes: [
      {
        id: "collections-abc",
        layer: "shim",
        symptom: "cannot import name 'Mapping'",
        what: "adds aliases",
        why: "They moved in Python 3.10.",
        risk: "none",
        used: ["collections.Mapping"],
      },
    ],
    suggestedFixes: [],
    failToPass: { success: isGood ? ["t.py::fix"] : [], failure: isGood ? [] : ["t.py::fix"] },
    passToPass: { success: ["t.py::keep"], failure: [] },
    flakyTests: verdict === "flaky" ? [{ test: "t.py::fix", outcomes: { passed: [1], failed: [0, 2] } }] : [],
    flagged: verdict === "tampered" ? ["conftest.py"] : [],
    startedAt: new Date(startMs).toISOString(),
    durationMs: atMs,
  };
}

/** Writes what a run leaves: a journal, and the files of its outputs. Labels in `unfinished` have no report. */
export function writeRun(
  directory: string,
  reports: readonly InstanceReport[],
  unfinished: readonly string[] = [],
): string {
  const labels = [...reports.map(({ id }) => labelOf(id)), ...unfinished];
  const bodies: RunEventBody[] = [
    { type: "run.start", runId: "run-1", pid: 1, bootId: "b", instances: labels, options: {} },
    ...labels.map((instance) => ({ type: "instance.start" as const, instance, key: "k" })),
    ...reports.map((report) => ({ type: "instance.end" as const, instance: labelOf(report.id), key: "k", report })),
    ...(unfinished.length === 0 ? [{ type: "run.end" as const, interrupted: false }] : []),
  ];
  const lines = bodies.map((body, index) => {
    const at = new Date(startMs + index * 100).toISOString();
    return `${JSON.stringify({ seq: index + 1, at, ...body })}\n`;
  });
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "events.ndjson"), lines.join(""));
  for (const { id, stages } of reports) {
    for (const { stdout, stderr } of stages.flatMap(({ commands }) => commands)) {
      for (const { path, head, bytes } of [stdout, stderr]) {
        if (bytes === 0) continue;
        mkdirSync(dirname(join(directory, path)), { recursive: true });
        writeFileSync(join(directory, path), head);
      }
    }
    mkdirSync(join(directory, "logs", labelOf(id)), { recursive: true });
    writeFileSync(join(directory, "logs", labelOf(id), "patch.diff"), "diff --git a/x b/x\r\n");
  }
  return directory;
}
