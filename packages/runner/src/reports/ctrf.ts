import type { InstanceReport, Verdict } from "../models/report.ts";
import type { StoredRun } from "./stored-run.ts";
import { gradedAttempts, testRows } from "./test-rows.ts";

type Status = "passed" | "failed" | "other";

/** Verdicts that say nothing about the code are neither a success nor a failure of it. */
const statuses: Readonly<Record<Verdict, Status>> = {
  resolved: "passed",
  partial: "failed",
  unresolved: "failed",
  empty_patch: "failed",
  apply_failed: "failed",
  timeout: "failed",
  tampered: "failed",
  flaky: "other",
  env_invalid: "other",
  infra_error: "other",
};

/** Common Test Report Format: one test per instance, with its test runs as attempts. */
export function renderCtrf({ report }: StoredRun): string {
  const tests = report.instances.map(ctrfTest);
  const count = (status: Status): number => tests.filter((test) => test.status === status).length;
  const start = Date.parse(report.startedAt);
  const duration = Math.round(report.durationMs);
  const document = {
    reportFormat: "CTRF",
    specVersion: "0.0.0",
    generatedBy: "atoll",
    timestamp: new Date(start + duration).toISOString(),
    results: {
      tool: { name: report.tool.name, version: report.tool.version },
      summary: {
        tests: tests.length,
        passed: count("passed"),
        failed: count("failed"),
        skipped: 0,
        pending: 0,
        other: count("other"),
        flaky: tests.filter(({ flaky }) => flaky).length,
        start,
        stop: start + duration,
        duration,
        extra: { verdicts: report.counts },
      },
      tests,
      environment: { reportName: report.runId, extra: { client: report.client, interrupted: report.interrupted } },
    },
  };
  return `${JSON.stringify(document, undefined, 2)}\n`;
}

function ctrfTest(instance: InstanceReport) {
  const start = Date.parse(instance.startedAt);
  const duration = Math.round(instance.durationMs);
  const attempts = gradedAttempts(instance);
  return {
    name: instance.id,
    status: statuses[instance.verdict],
    rawStatus: instance.verdict,
    duration,
    start,
    stop: start + duration,
    ...(instance.repo === "" ? {} : { suite: [instance.repo] }),
    ...(instance.verdict === "resolved" ? {} : { message: instance.reason }),
    retries: Math.max(0, attempts.length - 1),
    flaky: instance.verdict === "flaky",
    ...(attempts.length < 2
      ? {}
      : {
          retryAttempts: attempts.map(({ seed, command, tests }, index) => ({
            attempt: index + 1,
            status: "other",
            duration: Math.round(command?.durationMs ?? 0),
            extra: { seed, tests: Object.keys(tests).length },
          })),
        }),
    extra: {
      model: instance.model,
      failing: testRows(instance)
        .filter(({ good }) => !good)
        .map(({ id }) => id),
      flakyTests: instance.flakyTests,
      fixes: instance.fixes.map(({ id }) => id),
    },
  };
}
