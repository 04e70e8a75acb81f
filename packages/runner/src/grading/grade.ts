import type { AttemptResult, InstanceReport, StageName, Verdict } from "../models/report.ts";
import type { StageFailure } from "../session/stage-context.ts";
import { checkBaseline, type BaselineCheck } from "./baseline.ts";
import { endOf, hasLists, isReadable, outcomeOf, overall, type Expected } from "./expectation.ts";
import { findFlakyTests } from "./flaky-tests.ts";
import { meets } from "./test-results.ts";

export interface GradeInput {
  expected: Expected;
  /** `null` for a task that is run as it is: then the baseline is what is graded. */
  prediction: {
    /** There is no hunk in it. */
    empty: boolean;
    /** Its files that could change how tests are collected or reported. */
    flagged: readonly string[];
  } | null;
  /** All test runs of both states. */
  attempts: readonly AttemptResult[];
  /** Tests that are known to be flaky: they are listed, and decide nothing. */
  quarantine?: readonly string[];
}

export type Grade = Pick<InstanceReport, "verdict" | "reason" | "failToPass" | "passToPass" | "flakyTests">;

type Judgement = Pick<Grade, "verdict" | "reason">;

/**
 * The verdict of an instance from its test runs. A failure counts against the prediction only when the baseline held in
 * the same environment; a success counts for it only when the baseline showed the fault.
 */
export function grade(input: GradeInput): Grade {
  const { expected, attempts } = input;
  const kind = input.prediction === null ? "baseline" : "prediction";
  const graded = attempts.filter((attempt) => attempt.kind === kind);
  const ignored = new Set(input.quarantine);
  const deciding: Expected = {
    ...expected,
    failToPass: expected.failToPass.filter((id) => !ignored.has(id)),
    passToPass: expected.passToPass.filter((id) => !ignored.has(id)),
  };
  return {
    ...judge(input, deciding, graded),
    failToPass: outcomeOf("failToPass", expected, graded),
    passToPass: outcomeOf("passToPass", expected, graded),
    flakyTests: findFlakyTests(expected, attempts),
  };
}

/** The verdict when a stage failed, so that there is nothing to grade. */
export function verdictOfFailure(stage: StageName, blame: StageFailure["blame"]): Verdict {
  switch (blame) {
    case "infrastructure":
      return "infra_error";
    case "environment":
      return "env_invalid";
    case "prediction":
      return "apply_failed";
    case "timeout":
      // Only the tests of the prediction run its code; before them, the time was spent by the environment.
      return stage === "test" ? "timeout" : "env_invalid";
  }
}

/** Whether nothing but tests that should keep passing fail: those are run again before the prediction is blamed. */
export function failsPassToPassOnly(expected: Expected, attempt: AttemptResult): boolean {
  if (attempt.command !== null && attempt.command.end.kind !== "exit") return false;
  const holds = (list: "failToPass" | "passToPass") =>
    expected[list].every((id) => meets(id, list, attempt.tests, expected.failOnly));
  return isReadable(attempt, expected.failOnly) && holds("failToPass") && !holds("passToPass");
}

function judge(input: GradeInput, expected: Expected, graded: readonly AttemptResult[]): Judgement {
  if (input.prediction?.empty === true) return { verdict: "empty_patch", reason: "The prediction changes nothing." };
  if (hasLists(input.expected) && !hasLists(expected)) {
    return { verdict: "env_invalid", reason: "Every test of this instance is quarantined, so none can decide." };
  }
  if (graded.length === 0) return { verdict: "infra_error", reason: "The tests were not run." };
  const lost = input.attempts.find(({ command }) => command?.end.kind === "lost" || command?.end.kind === "aborted");
  if (lost !== undefined) return { verdict: "infra_error", reason: `The test run was cut off: ${endOf(lost)}.` };
  if (input.prediction === null) return judgeTask(expected, graded);

  const before = input.attempts.filter(({ kind }) => kind === "baseline");
  const judgements = graded.map((attempt) => judgeAttempt(attempt, before, expected, input.prediction?.flagged ?? []));
  const tampered = judgements.find(({ verdict }) => verdict === "tampered");
  if (tampered !== undefined) return tampered;
  const [first] = judgements;
  if (first === undefined || judgements.some(({ verdict }) => verdict !== first.verdict)) {
    const list = judgements.map(({ verdict }, index) => `${verdict} with seed ${graded[index]?.seed ?? index}`);
    return { verdict: "flaky", reason: `The same code gave different results: ${list.join(", ")}.` };
  }
  return weigh(first, graded[0], before, expected);
}

/** Sets a verdict on the prediction against what the baseline showed. */
function weigh(
  judgement: Judgement,
  attempt: AttemptResult | undefined,
  before: readonly AttemptResult[],
  expected: Expected,
): Judgement {
  const checks = before.map((baseline) => checkBaseline(baseline, expected));
  const broken = checks.find(({ held }) => !held);
  if (checks.length === 0) return { verdict: "env_invalid", reason: "The baseline was not run, so nothing is known." };
  if (broken === undefined) return judgement;
  if (judgement.verdict === "resolved") {
    if (!checks.some(({ showsFault }) => showsFault)) return invalidEnvironment(broken, attempt);
    return { verdict: "resolved", reason: `${judgement.reason} In the baseline ${broken.why}.` };
  }
  if (checks.some(({ held }) => held)) {
    return { verdict: "flaky", reason: `The baseline held in one test run and not in another: ${broken.why}.` };
  }
  return invalidEnvironment(broken, attempt);
}

function invalidEnvironment(check: BaselineCheck, attempt: AttemptResult | undefined): Judgement {
  const after = attempt === undefined ? "" : " What the prediction does cannot be judged in this environment.";
  return { verdict: "env_invalid", reason: `The baseline does not hold: ${check.why}.${after}` };
}

function judgeAttempt(
  attempt: AttemptResult,
  before: readonly AttemptResult[],
  expected: Expected,
  flagged: readonly string[],
): Judgement {
  const baselineCanaryFailed = before.length > 0 && before.every(({ canary }) => canary === "failed");
  const changed = flagged.length === 0 ? "" : ` The prediction changes ${flagged.slice(0, 5).join(", ")}.`;
  if (attempt.canary === "passed") {
    return { verdict: "tampered", reason: `A test that must fail passed: results are forged.${changed}` };
  }
  if (attempt.command?.end.kind === "timeout") {
    return { verdict: "timeout", reason: `The tests did not finish (${endOf(attempt)}).` };
  }
  const judgement = hasLists(expected) ? judgeLists(attempt, expected) : judgeOverall(attempt);
  if (judgement.verdict === "unresolved") return judgement;
  if (baselineCanaryFailed && attempt.canary === "missing") {
    return { verdict: "tampered", reason: `A test that must fail is gone from the results.${changed}` };
  }
  const end = attempt.command?.end;
  if (end?.kind === "exit") {
    if (end.code === 0 && attempt.canary === "failed" && before.every(endsWithFailure)) {
      return { verdict: "tampered", reason: `The test command ended with 0 although a test failed.${changed}` };
    }
    const result = attempt.parser === "exit-code" || expected.failOnly ? undefined : overall(attempt);
    if (end.code !== 0 && result?.kind === "unclear") {
      const reason = `Every test passed by the output, but ${result.why}.${changed}`;
      return { verdict: flagged.length > 0 ? "tampered" : "unresolved", reason };
    }
  }
  return { ...judgement, reason: judgement.reason + changed };
}

const endsWithFailure = ({ command }: AttemptResult): boolean => command?.end.kind === "exit" && command.end.code !== 0;

function judgeLists(attempt: AttemptResult, expected: Expected): Judgement {
  const ended = endOf(attempt);
  if (!isReadable(attempt, expected.failOnly)) {
    return { verdict: "unresolved", reason: `With the prediction the tests do not run (${ended}).` };
  }
  const failToPass = outcomeOf("failToPass", expected, [attempt]);
  const passToPass = outcomeOf("passToPass", expected, [attempt]);
  const fixed = `${failToPass.success.length} of ${expected.failToPass.length} tests are fixed`;
  const kept = `${passToPass.success.length} of ${expected.passToPass.length} keep passing`;
  const reason = `${fixed} and ${kept}.`;
  if (passToPass.failure.length > 0) return { verdict: "unresolved", reason };
  if (failToPass.failure.length === 0) return { verdict: "resolved", reason };
  return { verdict: failToPass.success.length > 0 ? "partial" : "unresolved", reason };
}

function judgeOverall(attempt: AttemptResult): Judgement {
  const result = overall(attempt);
  if (result.kind === "passed") return { verdict: "resolved", reason: "All tests pass." };
  const reason = result.kind === "failed" ? "Tests fail." : `Nothing is known of the tests: ${result.why}.`;
  return { verdict: "unresolved", reason };
}

function judgeTask(expected: Expected, attempts: readonly AttemptResult[]): Judgement {
  const judgements = attempts.map((attempt): Judgement => {
    if (attempt.command?.end.kind === "timeout") {
      return { verdict: "timeout", reason: `The tests did not finish (${endOf(attempt)}).` };
    }
    const check = checkBaseline(attempt, expected);
    if (check.held) {
      if (hasLists(expected)) return { verdict: "resolved", reason: "Every listed test is as the task expects." };
      return { verdict: "resolved", reason: expected.expectedFail ? "Tests fail, as expected." : "All tests pass." };
    }
    const unknown = !hasLists(expected) && overall(attempt).kind === "unclear";
    const verdict = unknown || attempt.canary === "passed" ? "env_invalid" : "unresolved";
    return { verdict, reason: `Not as expected: ${check.why}.` };
  });
  const [first] = judgements;
  const differs = judgements.find(({ verdict }) => verdict !== first?.verdict);
  if (first !== undefined && differs === undefined) return first;
  const list = judgements.map(({ verdict }, index) => `${verdict} with seed ${attempts[index]?.seed ?? index}`);
  return { verdict: "flaky", reason: `The same code gave different results: ${list.join(", ")}.` };
}
