import type { TestStatus } from "../models/report.ts";

/** Results of one test run by test id, as reports keep them. */
export type TestResults = Readonly<Record<string, TestStatus>>;

const statusOf = (results: TestResults, id: string): TestStatus | undefined =>
  Object.hasOwn(results, id) ? results[id] : undefined;

const passes = (status: TestStatus | undefined): boolean => status === "passed" || status === "xfailed";

/** `test_x (module.Class)` and `test_x (module.Class.test_x)`, which Python prints since 3.11, are the same test. */
function otherUnittestForm(id: string): string | undefined {
  const open = id.indexOf(" (");
  if (open < 1 || !id.endsWith(")")) return undefined;
  const method = id.slice(0, open);
  const path = id.slice(open + 2, -1);
  if (/\s/.test(method)) return undefined;
  const suffix = `.${method}`;
  return path.endsWith(suffix) ? `${method} (${path.slice(0, -suffix.length)})` : `${method} (${path}${suffix})`;
}

/** Data sets have ids of parametrised tests that were cut at a space: `test_unit[log(photon`. */
function statusOfCutId(id: string, results: TestResults): TestStatus | undefined {
  if (id.split("[").length <= id.split("]").length) return undefined;
  const found = Object.keys(results).filter((key) => key.startsWith(id));
  const statuses = found.map((key) => statusOf(results, key));
  const agree = new Set(statuses.map(passes)).size === 1;
  return agree ? statuses[0] : undefined;
}

/**
 * The status of a test that a data set expects, or `undefined` when the results do not have it. Forms of ids that
 * differ between versions of a test runner are the same test.
 */
export function findStatus(id: string, results: TestResults): TestStatus | undefined {
  const exact = statusOf(results, id);
  if (exact !== undefined) return exact;
  const directive = id.search(/ # (?:skip|todo)\b/i);
  if (directive > 0) return statusOf(results, id.slice(0, directive).trimEnd());
  const other = otherUnittestForm(id);
  return (other === undefined ? undefined : statusOf(results, other)) ?? statusOfCutId(id, results);
}

/** Expected tests that the results do not have. */
export const missingTests = (expected: readonly string[], results: TestResults): string[] =>
  expected.filter((id) => findStatus(id, results) === undefined);

export type ExpectedList = "failToPass" | "passToPass";

/**
 * Whether a test is as its list asks, by the rules of SWE-bench: a test that has to pass must have run, so a skipped
 * one fails; a test that has to keep passing may be skipped. With `failOnly`, from runners that print failures only,
 * just an explicit failure counts.
 */
export function meets(id: string, list: ExpectedList, results: TestResults, failOnly: boolean): boolean {
  const status = findStatus(id, results);
  if (failOnly) return status !== "failed";
  return passes(status) || (list === "passToPass" && status === "skipped");
}

export const isFailure = (status: TestStatus): boolean => status === "failed" || status === "error";
