import type { AttemptResult } from "../models/report.ts";
import { endOf, hasLists, isReadable, overall, type Expected } from "./expectation.ts";
import { meets } from "./test-results.ts";

/** What a test run before the prediction says about the environment. */
export interface BaselineCheck {
  /** Everything is as the task says it is before a fix, so what fails later is the fault of the prediction. */
  held: boolean;
  /** At least one test that has to be fixed fails, so what passes later is the merit of the prediction. */
  showsFault: boolean;
  /** What is not as expected, as the end of a sentence; empty when the baseline held. */
  why: string;
}

const invalid = (why: string, showsFault = false): BaselineCheck => ({ held: false, showsFault, why });

const some = (ids: readonly string[]): string => `${ids.slice(0, 3).join(", ")}${ids.length > 3 ? ", …" : ""}`;

/** The counts of tests that are quarantined are left out by the caller: `expected` names the tests that decide. */
export function checkBaseline(attempt: AttemptResult, expected: Expected): BaselineCheck {
  const end = attempt.command?.end.kind;
  if (end === "timeout" || end === "oom") return invalid(`the test command did not finish (${endOf(attempt)})`);
  if (attempt.canary === "passed") return invalid("a test that must fail passed, so results mean nothing");
  if (!hasLists(expected)) return checkOverall(attempt, expected);
  const failing = expected.failToPass.filter((id) => !meets(id, "failToPass", attempt.tests, expected.failOnly));
  if (!isReadable(attempt, expected.failOnly)) {
    return invalid(`the tests did not run (${endOf(attempt)})`, !expected.failOnly && failing.length > 0);
  }
  const showsFault = failing.length > 0;
  const broken = expected.passToPass.filter((id) => !meets(id, "passToPass", attempt.tests, expected.failOnly));
  if (broken.length > 0) {
    const count = `${broken.length} of ${expected.passToPass.length}`;
    return invalid(`${count} tests that should pass do not: ${some(broken)}`, showsFault);
  }
  const passing = expected.failToPass.filter((id) => !failing.includes(id));
  if (passing.length > 0) {
    const count = `${passing.length} of ${expected.failToPass.length}`;
    return invalid(`${count} tests that should fail already pass: ${some(passing)}`, showsFault);
  }
  return { held: true, showsFault, why: "" };
}

function checkOverall(attempt: AttemptResult, expected: Expected): BaselineCheck {
  const result = overall(attempt);
  if (result.kind === "unclear") return invalid(result.why);
  const failed = result.kind === "failed";
  if (failed === expected.expectedFail) return { held: true, showsFault: true, why: "" };
  return invalid(failed ? "tests fail that should pass" : "the tests pass, but a failure was expected");
}
