import { findStatus } from "../grading/test-results.ts";
import type { InstanceReport, TestStatus } from "../models/report.ts";

/** One test of an instance, for reports that list tests. */
export interface TestRow {
  id: string;
  /** The list it is on; tests of a task without lists are on none. */
  list: "FAIL_TO_PASS" | "PASS_TO_PASS" | "";
  /** Whether it is as its list asks. */
  good: boolean;
  status: TestStatus | "missing";
  flaky: boolean;
}

/** The test runs that were graded: those of the prediction, or of the baseline where there is no prediction. */
export const gradedAttempts = ({ attempts }: InstanceReport): InstanceReport["attempts"] => {
  const predictions = attempts.filter(({ kind }) => kind === "prediction");
  return predictions.length > 0 ? predictions : attempts;
};

/** The tests that decided, or all of them where none were named. */
export function testRows(report: InstanceReport): TestRow[] {
  const attempts = gradedAttempts(report);
  const last = attempts.at(-1)?.tests ?? {};
  const flaky = new Set(report.flakyTests.map(({ test }) => test));
  const row = (id: string, list: TestRow["list"], good: boolean): TestRow => ({
    id,
    list,
    good,
    status: findStatus(id, last) ?? "missing",
    flaky: flaky.has(id),
  });
  const { failToPass, passToPass } = report;
  const listed = [
    ...failToPass.success.map((id) => row(id, "FAIL_TO_PASS", true)),
    ...failToPass.failure.map((id) => row(id, "FAIL_TO_PASS", false)),
    ...passToPass.success.map((id) => row(id, "PASS_TO_PASS", true)),
    ...passToPass.failure.map((id) => row(id, "PASS_TO_PASS", false)),
  ];
  if (listed.length > 0 || attempts.length === 0) return listed;
  return Object.entries(last).map(([id, status]) => row(id, "", status !== "failed" && status !== "error"));
}
