import { Verdict } from "../models/report.ts";
import { formatMs, plain } from "./plain-text.ts";
import type { StoredRun } from "./stored-run.ts";
import { testRows } from "./test-rows.ts";

/** Text that stays text in a cell of a table: no HTML, no links, no mentions, no second cell. */
const cell = (text: string): string =>
  plain(text)
    .replaceAll(/[\r\n\t]+/g, " ")
    .replaceAll(/[\\`*_{}[\]<>()#!|~@&]/g, (char) => (char === "@" ? "@\u200B" : `\\${char}`))
    .replaceAll("://", ":\u200B//");

/** Code with a fence that its text does not have. */
function code(text: string): string {
  const shown = plain(text)
    .replaceAll(/[\r\n\t]+/g, " ")
    .replaceAll("|", "\u2502");
  const longest = Math.max(0, ...[...shown.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return longest === 0 ? `${fence}${shown}${fence}` : `${fence} ${shown} ${fence}`;
}

const mostTests = 20;
const mostDetails = 50;

/** A page for a person: counts, a table, and what failed. Also what a GitHub job shows as its summary. */
export function renderMarkdown({ report, unfinished }: StoredRun): string {
  const { instances, counts } = report;
  const good = counts.resolved;
  const totals = Verdict.options
    .filter((verdict) => counts[verdict] > 0)
    .map((verdict) => `${counts[verdict]} ${verdict}`);
  const rows = instances.map((instance) => {
    const { failToPass, passToPass } = instance;
    const share = ({ success, failure }: typeof failToPass) => `${success.length}/${success.length + failure.length}`;
    const cells = [
      code(instance.id),
      instance.verdict,
      share(failToPass),
      share(passToPass),
      formatMs(instance.durationMs),
      cell(instance.reason.slice(0, 300)),
    ];
    return `| ${cells.join(" | ")} |`;
  });
  const failed = instances.filter(({ verdict }) => verdict !== "resolved");
  const details = failed.slice(0, mostDetails).flatMap((instance) => {
    const failing = testRows(instance).filter((row) => !row.good);
    const more = failing.length > mostTests ? [`- and ${failing.length - mostTests} more`] : [];
    const flaky = instance.flakyTests.map(({ test, outcomes }) => {
      const seen = Object.entries(outcomes).map(([outcome, seeds]) => `${outcome} with seed ${seeds.join(", ")}`);
      return `- flaky: ${code(test)}: ${seen.join("; ")}`;
    });
    const fixes = instance.fixes.map(({ id, what }) => `- fix ${code(id)}: ${cell(what)}`);
    const lines = [
      ...failing.slice(0, mostTests).map((row) => `- ${row.status}: ${code(row.id)}`),
      ...more,
      ...flaky.slice(0, mostTests),
      ...fixes,
    ];
    return ["", `### ${code(instance.id)}: ${instance.verdict}`, "", cell(instance.reason), "", ...lines];
  });
  return [
    `# Run ${code(report.runId)}`,
    "",
    `**${good} of ${instances.length + unfinished.length} resolved** in ${formatMs(report.durationMs)}: ` +
      `${totals.join(", ") || "nothing was run"}.`,
    ...(unfinished.length === 0 ? [] : ["", `${unfinished.length} did not end: ${unfinished.map(code).join(", ")}.`]),
    "",
    "| instance | verdict | fixed | kept | time | reason |",
    "| --- | --- | --- | --- | --- | --- |",
    ...rows,
    ...details,
    ...(failed.length > mostDetails ? ["", `And ${failed.length - mostDetails} more.`] : []),
    "",
  ].join("\n");
}
