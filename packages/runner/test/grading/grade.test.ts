import { describe, expect, test } from "vitest";
import { failsPassToPassOnly, grade, verdictOfFailure, type GradeInput } from "../../src/grading/grade.ts";
import type { AttemptResult, TestStatus } from "../../src/models/report.ts";
import { attempt, exit } from "./attempts.ts";

const expected = { failToPass: ["fix"], passToPass: ["keep"], failOnly: false, expectedFail: false };
const honest = { empty: false, flagged: [] };
const before = attempt("baseline", { fix: "failed", keep: "passed" });
const fixed = attempt("prediction", { fix: "passed", keep: "passed" });

const verdict = (changes: Partial<GradeInput>) =>
  grade({ expected, prediction: honest, attempts: [before, fixed], ...changes }).verdict;
const after = (tests: Record<string, TestStatus>, changes = {}) =>
  grade({ expected, prediction: honest, attempts: [before, attempt("prediction", tests, changes)] });

describe("the rules of SWE-bench", () => {
  test.for<[TestStatus | undefined, TestStatus | undefined, string]>([
    ["passed", "passed", "resolved"],
    ["xfailed", "passed", "resolved"],
    ["passed", "skipped", "resolved"],
    ["passed", "xfailed", "resolved"],
    ["skipped", "passed", "unresolved"],
    ["failed", "passed", "unresolved"],
    ["error", "passed", "unresolved"],
    [undefined, "passed", "unresolved"],
    ["passed", "failed", "unresolved"],
    ["passed", undefined, "unresolved"],
    ["xpassed", "passed", "unresolved"],
  ])("a test to fix that is %s and one to keep that is %s: %s", ([fix, keep, verdict]) => {
    const tests = Object.entries({ fix, keep }).filter((row): row is [string, TestStatus] => row[1] !== undefined);
    expect(after(Object.fromEntries(tests)).verdict).toBe(verdict);
  });

  test("some tests fixed and all kept is partial, and with one lost it is unresolved", () => {
    const two = { ...expected, failToPass: ["fix", "other"] };
    const baseline = attempt("baseline", { fix: "failed", other: "failed", keep: "passed" });
    const result = (keep: TestStatus) => {
      const run = attempt("prediction", { fix: "passed", other: "failed", keep });
      return grade({ expected: two, prediction: honest, attempts: [baseline, run] });
    };
    expect(result("passed")).toMatchObject({
      verdict: "partial",
      reason: "1 of 2 tests are fixed and 1 of 1 keep passing.",
      failToPass: { success: ["fix"], failure: ["other"] },
    });
    expect(result("failed").verdict).toBe("unresolved");
  });

  test("an id that was cut in the data set is found by its beginning when all candidates agree", () => {
    const cut = { ...expected, failToPass: ["t.py::t[log(photon"], passToPass: [] };
    const baseline = attempt("baseline", { "t.py::t[log(photon / s)]": "failed", "t.py::t[log(photon)]": "failed" });
    const run = (second: TestStatus) =>
      attempt("prediction", { "t.py::t[log(photon / s)]": "passed", "t.py::t[log(photon)]": second });
    expect(verdict({ expected: cut, attempts: [baseline, run("passed")] })).toBe("resolved");
    expect(verdict({ expected: cut, attempts: [baseline, run("failed")] })).toBe("unresolved");
  });

  test.for([
    ["test_a (app.tests.CaseTests)", "test_a (app.tests.CaseTests.test_a)"],
    ["test_a (app.tests.CaseTests.test_a)", "test_a (app.tests.CaseTests)"],
  ])("%s is found as %s", ([listed, printed]) => {
    const lists = { ...expected, failToPass: [listed as string], passToPass: [] };
    const attempts = [
      attempt("baseline", { [printed as string]: "failed" }),
      attempt("prediction", { [printed as string]: "passed" }),
    ];
    expect(verdict({ expected: lists, attempts })).toBe("resolved");
  });

  test("a runner that prints failures only is believed when it came to its end", () => {
    const failOnly = { ...expected, failOnly: true };
    const baseline = attempt("baseline", { fix: "failed" });
    const run = (suiteRan: boolean) => attempt("prediction", {}, { suiteRan });
    expect(verdict({ expected: failOnly, attempts: [baseline, run(true)] })).toBe("resolved");
    expect(verdict({ expected: failOnly, attempts: [baseline, run(false)] })).toBe("unresolved");
  });
});

describe("the baseline", () => {
  test.for<[string, AttemptResult]>([
    ["a test to keep fails before", attempt("baseline", { fix: "failed", keep: "failed" })],
    ["a test to keep is missing before", attempt("baseline", { fix: "failed" })],
    ["a test to fix passes before", attempt("baseline", { fix: "passed", keep: "passed" })],
    ["nothing ran", attempt("baseline", {}, { suiteRan: false, end: exit(127) })],
    ["it timed out", attempt("baseline", before.tests, { end: { kind: "timeout", limitMs: 5, reason: "total" } })],
    ["a test that must fail passed", attempt("baseline", before.tests, { canary: "passed" })],
  ])("the prediction is not blamed when %s", ([, baseline]) => {
    const failing = attempt("prediction", { fix: "failed", keep: "passed" });
    const result = grade({ expected, prediction: honest, attempts: [baseline, failing] });
    expect(result.verdict).toBe("env_invalid");
    expect(result.reason).toMatch(/^The baseline does not hold: .+ cannot be judged in this environment\.$/);
  });

  test("a prediction is not blamed without a baseline", () => {
    expect(verdict({ attempts: [attempt("prediction", { fix: "failed", keep: "passed" })] })).toBe("env_invalid");
  });

  test("tests that pass before as well as after prove nothing", () => {
    const baseline = attempt("baseline", { fix: "passed", keep: "passed" });
    expect(verdict({ attempts: [baseline, fixed] })).toBe("env_invalid");
  });

  test("what is fixed counts although an unrelated test was broken before, and the reason says so", () => {
    const lists = { ...expected, failToPass: ["fix", "already"] };
    const baseline = attempt("baseline", { fix: "failed", already: "passed", keep: "passed" });
    const run = attempt("prediction", { fix: "passed", already: "passed", keep: "passed" });
    const result = grade({ expected: lists, prediction: honest, attempts: [baseline, run] });
    expect(result.verdict).toBe("resolved");
    expect(result.reason).toContain("1 of 2 tests that should fail already pass: already");
  });
});

describe("how commands end", () => {
  test("a time limit is its own verdict, with tests that passed or without", () => {
    expect(after(fixed.tests, { end: { kind: "timeout", limitMs: 1000, reason: "total" } })).toMatchObject({
      verdict: "timeout",
      reason: "The tests did not finish (timeout after 1 s).",
    });
  });

  test("a command whose end is not known is a failure of the infrastructure", () => {
    expect(after({ fix: "failed" }, { end: { kind: "lost", reason: "the server is gone" } }).verdict).toBe(
      "infra_error",
    );
    expect(after({ fix: "failed" }, { end: { kind: "aborted" } }).verdict).toBe("infra_error");
  });

  test("the exit code is not the verdict when an ungraded test fails", () => {
    const baseline = attempt("baseline", { fix: "failed", keep: "passed", other: "error" });
    const run = attempt("prediction", { fix: "passed", keep: "passed", other: "error" }, { end: exit(1) });
    expect(verdict({ attempts: [baseline, run] })).toBe("resolved");
  });

  test("an output in which everything passes is not believed against a failing exit code", () => {
    expect(after(fixed.tests, { end: exit(1) })).toMatchObject({
      verdict: "unresolved",
      reason: expect.stringContaining("the test command ended with exit 1, but its output has no failed test"),
    });
    const attempts = [before, attempt("prediction", fixed.tests, { end: exit(1) })];
    expect(verdict({ prediction: { empty: false, flagged: ["conftest.py"] }, attempts })).toBe("tampered");
  });

  test("a crash without results is unresolved", () => {
    const crash = { suiteRan: false, end: { kind: "signal", signal: "SIGSEGV" } as const };
    expect(after({}, crash)).toMatchObject({ verdict: "unresolved", reason: expect.stringContaining("SIGSEGV") });
  });
});

describe("the canary", () => {
  const baseline = attempt("baseline", before.tests, { canary: "failed" });
  const run = (changes: Pick<AttemptResult, "canary">) =>
    verdict({ attempts: [baseline, attempt("prediction", fixed.tests, changes)] });

  test("a canary that fails beside tests that pass is an honest run", () => {
    expect(run({ canary: "failed" })).toBe("resolved");
  });

  test.for(["passed", "missing"] as const)("a canary that is %s shows forged results", (canary) => {
    expect(run({ canary })).toBe("tampered");
  });

  test("an exit code of 0 beside a failed canary is forged", () => {
    const forged = attempt("prediction", fixed.tests, { canary: "failed", end: exit(0) });
    expect(verdict({ attempts: [baseline, forged] })).toBe("tampered");
  });

  test("a canary that the baseline did not show either proves nothing", () => {
    const without = attempt("baseline", before.tests, { canary: "missing" });
    const result = attempt("prediction", fixed.tests, { canary: "missing" });
    expect(verdict({ attempts: [without, result] })).toBe("resolved");
  });

  test("a missing canary in a run that fails is no forgery", () => {
    const broken = attempt("prediction", {}, { canary: "missing", suiteRan: false, end: exit(4) });
    expect(verdict({ attempts: [baseline, broken] })).toBe("unresolved");
  });
});

describe("repeated test runs", () => {
  const run = (seed: number, fix: TestStatus) => attempt("prediction", { fix, keep: "passed" }, { seed });

  test("different outcomes are flaky, with the seeds of each", () => {
    const attempts = [before, run(0, "error"), run(1, "error"), run(2, "passed")];
    const result = grade({ expected, prediction: honest, attempts });
    expect(result).toMatchObject({
      verdict: "flaky",
      flakyTests: [{ test: "fix", outcomes: { error: [0, 1], passed: [2] } }],
    });
    expect(result.reason).toContain("unresolved with seed 0");
  });

  test("equal outcomes are one verdict", () => {
    expect(verdict({ attempts: [before, run(0, "passed"), run(1, "passed")] })).toBe("resolved");
  });

  test("a quarantined test is listed and decides nothing", () => {
    const lists = { ...expected, failToPass: ["fix", "moody"] };
    const baseline = attempt("baseline", { fix: "failed", moody: "failed", keep: "passed" });
    const results = (seed: number, moody: TestStatus) =>
      attempt("prediction", { fix: "passed", moody, keep: "passed" }, { seed });
    const attempts = [baseline, results(0, "passed"), results(1, "failed")];
    const result = grade({ expected: lists, prediction: honest, attempts, quarantine: ["moody"] });
    expect(result.verdict).toBe("resolved");
    expect(result.failToPass.failure).toEqual(["moody"]);
    expect(result.flakyTests).toHaveLength(1);
    expect(verdict({ quarantine: ["fix", "keep"] })).toBe("env_invalid");
  });

  test("a baseline that holds in one run and not in another is flaky, and no blame", () => {
    const attempts = [
      attempt("baseline", { fix: "failed", keep: "passed" }, { seed: 0 }),
      attempt("baseline", { fix: "failed", keep: "failed" }, { seed: 1 }),
      attempt("prediction", { fix: "passed", keep: "failed" }),
    ];
    expect(verdict({ attempts })).toBe("flaky");
  });

  test("only failures of tests to keep ask for another run", () => {
    const ask = (tests: Record<string, TestStatus>) => failsPassToPassOnly(expected, attempt("prediction", tests));
    expect(ask({ fix: "passed", keep: "failed" })).toBe(true);
    expect(ask({ fix: "failed", keep: "failed" })).toBe(false);
    expect(ask({ fix: "passed", keep: "passed" })).toBe(false);
  });
});

describe("a task without a prediction", () => {
  const task = (expectedFail: boolean, run: AttemptResult) =>
    grade({
      expected: { failToPass: [], passToPass: [], failOnly: false, expectedFail },
      prediction: null,
      attempts: [run],
    });

  test.for([
    [false, "passed", "resolved"],
    [false, "failed", "unresolved"],
    [true, "passed", "unresolved"],
    [true, "failed", "resolved"],
  ] as const)("expected to fail: %s, test %s: %s", ([expectedFail, status, verdict]) => {
    expect(task(expectedFail, attempt("baseline", { t: status })).verdict).toBe(verdict);
  });

  test("a command that is not there is not a failure that was expected", () => {
    const run = attempt("baseline", {}, { parser: "exit-code", end: exit(127) });
    expect(task(true, run)).toMatchObject({ verdict: "env_invalid", reason: expect.stringContaining("exit 127") });
  });

  test("an exit code alone is a verdict only where the task asks for it", () => {
    const run = (parser: string) => attempt("baseline", {}, { parser, suiteRan: false });
    expect(task(false, run("exit-code")).verdict).toBe("resolved");
    expect(task(false, run("auto"))).toMatchObject({
      verdict: "env_invalid",
      reason: expect.stringContaining("`parser: exit-code`"),
    });
  });

  test("lists are compared with the baseline", () => {
    expect(grade({ expected, prediction: null, attempts: [before] }).verdict).toBe("resolved");
    const passing = attempt("baseline", { fix: "passed", keep: "passed" });
    expect(grade({ expected, prediction: null, attempts: [passing] })).toMatchObject({ verdict: "unresolved" });
  });
});

test("an empty patch needs no test run", () => {
  expect(verdict({ prediction: { empty: true, flagged: [] }, attempts: [] })).toBe("empty_patch");
});

test("a failed stage has the verdict of what is to blame", () => {
  expect(verdictOfFailure("apply", "prediction")).toBe("apply_failed");
  expect(verdictOfFailure("setup", "environment")).toBe("env_invalid");
  expect(verdictOfFailure("setup", "timeout")).toBe("env_invalid");
  expect(verdictOfFailure("test", "timeout")).toBe("timeout");
  expect(verdictOfFailure("checkout", "infrastructure")).toBe("infra_error");
});
