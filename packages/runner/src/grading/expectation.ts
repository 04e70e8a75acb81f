import { describeEnd } from "../models/command.ts";
import type { AttemptResult } from "../models/report.ts";
import type { TaskSpec } from "../models/task.ts";
import { isFailure, meets, type ExpectedList } from "./test-results.ts";

/** What a task says about its tests. */
export type Expected = Pick<TaskSpec, "failToPass" | "passToPass" | "failOnly" | "expectedFail">;

export const hasLists = (expected: Expected): boolean => expected.failToPass.length + expected.passToPass.length > 0;

/** Returns the tests of a list that have the expected outcome in every one of these test runs, and the others. */
export function outcomeOf(
  list: ExpectedList,
  expected: Expected,
  attempts: readonly AttemptResult[],
): { success: string[]; failure: string[] } {
  const success: string[] = [];
  const failure: string[] = [];
  for (const id of expected[list]) {
    const good = attempts.length > 0 && attempts.every((attempt) => meets(id, list, attempt.tests, expected.failOnly));
    (good ? success : failure).push(id);
  }
  return { success, failure };
}

/** How the command of a test run ended, for a sentence; empty where it is not known. */
export const endOf = (attempt: AttemptResult): string =>
  attempt.command === null ? "" : describeEnd(attempt.command.end);

/**
 * Whether results can be read from a test run at all. A runner that prints failures only must have come to its end:
 * after a crash in its first second, no test has failed either.
 */
export const isReadable = (attempt: AttemptResult, failOnly: boolean): boolean =>
  attempt.suiteRan || (!failOnly && Object.keys(attempt.tests).length > 0);

/** The outcome of a test run as a whole, where a task names no tests. */
export type Overall = { kind: "passed" } | { kind: "failed" } | { kind: "unclear"; why: string };

export function overall(attempt: AttemptResult): Overall {
  const end = attempt.command?.end;
  const ended = endOf(attempt);
  if (attempt.parser === "exit-code") {
    if (end?.kind === "exit" && end.code === 0) return { kind: "passed" };
    const notStarted = end?.kind === "exit" && (end.code === 126 || end.code === 127);
    return notStarted
      ? { kind: "unclear", why: `the test command could not be started (${ended})` }
      : { kind: "failed" };
  }
  if (Object.values(attempt.tests).some(isFailure)) return { kind: "failed" };
  if (!attempt.suiteRan) {
    const hint = "if its exit code is enough, set `parser: exit-code`";
    return { kind: "unclear", why: `the output has no results of a test runner (${ended}); ${hint}` };
  }
  const succeeded = end === undefined || (end.kind === "exit" && end.code === 0);
  // The canary is a failed test, so a run with it cannot end with 0.
  if (succeeded || (end.kind === "exit" && attempt.canary === "failed")) return { kind: "passed" };
  return { kind: "unclear", why: `the test command ended with ${ended}, but its output has no failed test` };
}
