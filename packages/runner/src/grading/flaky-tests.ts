import type { AttemptResult, InstanceReport } from "../models/report.ts";
import { hasLists, type Expected } from "./expectation.ts";
import { findStatus } from "./test-results.ts";

type FlakyTests = InstanceReport["flakyTests"];

/**
 * Tests whose outcome differs between test runs of one state, with the seeds of each outcome. Test runs that were cut
 * short are left out: what they did not get to says nothing about a test.
 */
export function findFlakyTests(expected: Expected, attempts: readonly AttemptResult[]): FlakyTests {
  const complete = attempts.filter(({ command }) => command === null || command.end.kind === "exit");
  const found = (["baseline", "prediction"] as const).flatMap((kind) =>
    compare(
      expected,
      complete.filter((attempt) => attempt.kind === kind),
    ),
  );
  // A test that differs in both states is listed once, with what it did in the second.
  return [...new Map(found.map((row) => [row.test, row])).values()];
}

function compare(expected: Expected, attempts: readonly AttemptResult[]): FlakyTests {
  if (attempts.length < 2) return [];
  const absent = expected.failOnly ? "passed" : "missing";
  const ids = hasLists(expected)
    ? [...expected.failToPass, ...expected.passToPass]
    : [...new Set(attempts.flatMap(({ tests }) => Object.keys(tests)))];
  return ids.flatMap((test) => {
    const outcomes = new Map<string, number[]>();
    for (const [index, attempt] of attempts.entries()) {
      const outcome = findStatus(test, attempt.tests) ?? absent;
      outcomes.set(outcome, [...(outcomes.get(outcome) ?? []), attempt.seed ?? index]);
    }
    return outcomes.size > 1 ? [{ test, outcomes: Object.fromEntries(outcomes) }] : [];
  });
}
