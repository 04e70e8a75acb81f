import { plain } from "./plain-text.ts";
import type { StoredRun } from "./stored-run.ts";
import { testRows } from "./test-rows.ts";

/** XML has no way to write most control characters; `plain` has replaced them. */
const escapes: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "\n": "&#10;",
  "\r": "&#13;",
  "\t": "&#9;",
};

const xml = (text: string): string => plain(text).replaceAll(/[&<>"\n\r\t]/g, (char) => escapes[char] ?? char);

const seconds = (ms: number): string => (ms / 1000).toFixed(3);

/** One suite per instance: its verdict, and the tests that decided it. */
export function renderJunit({ report }: StoredRun): string {
  let tests = 0;
  let failures = 0;
  let errors = 0;
  const suites = report.instances.map((instance) => {
    const rows = testRows(instance);
    const isResolved = instance.verdict === "resolved";
    // What is not the fault of the code is an error and no failure.
    const isError = instance.verdict === "infra_error" || instance.verdict === "env_invalid";
    const failed = rows.filter(({ good }) => !good).length + (isResolved || isError ? 0 : 1);
    tests += rows.length + 1;
    failures += failed;
    errors += isError ? 1 : 0;
    const name = xml(instance.model === "" ? instance.id : `${instance.id} (${instance.model})`);
    const outcome = `<${isError ? "error" : "failure"} type="${instance.verdict}" message="${xml(instance.reason)}"/>`;
    const cases = rows.map(({ id, list, good, status, flaky }) => {
      const test = `<testcase classname="${name}${list === "" ? "" : `.${list}`}" name="${xml(id)}"`;
      if (!good) return `${test}><failure type="${status}" message="${status}${flaky ? ", flaky" : ""}"/></testcase>`;
      return status === "skipped" ? `${test}><skipped/></testcase>` : `${test}/>`;
    });
    const attributes = [
      `name="${name}"`,
      `tests="${rows.length + 1}"`,
      `failures="${failed}"`,
      `errors="${isError ? 1 : 0}"`,
      `skipped="${rows.filter(({ good, status }) => good && status === "skipped").length}"`,
      `time="${seconds(instance.durationMs)}"`,
      `timestamp="${xml(instance.startedAt)}"`,
    ];
    const verdict = `<testcase classname="${name}" name="verdict" time="${seconds(instance.durationMs)}"`;
    return [
      `  <testsuite ${attributes.join(" ")}>`,
      `    ${verdict}${isResolved ? "/>" : `>${outcome}</testcase>`}`,
      ...cases.map((line) => `    ${line}`),
      "  </testsuite>",
    ].join("\n");
  });
  const totals = `tests="${tests}" failures="${failures}" errors="${errors}" time="${seconds(report.durationMs)}"`;
  const head = `<testsuites name="${xml(report.runId)}" ${totals}>`;
  return ['<?xml version="1.0" encoding="UTF-8"?>', head, ...suites, "</testsuites>", ""].join("\n");
}
