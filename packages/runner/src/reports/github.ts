import type { InstanceReport } from "../models/report.ts";
import { plain } from "./plain-text.ts";
import type { StoredRun } from "./stored-run.ts";
import { testRows } from "./test-rows.ts";

/** Text of a workflow command. A line break in it would begin another command. */
const data = (text: string): string =>
  plain(text).replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");

const property = (text: string): string => data(text).replaceAll(":", "%3A").replaceAll(",", "%2C");

/** `::` begins a command wherever a line begins with it; one invisible character before it and it does not. */
const line = (text: string): string =>
  plain(text)
    .split(/[\r\n]+/)
    .map((part) => part.replace(/^\s*::/, "\u200B::"))
    .join("\n");

/** The file that a Python id begins with. */
const fileOf = (id: string): string | undefined => /^([^\s:]+\.\w+)::/.exec(id)?.[1];

const mostTests = 10;

/** GitHub shows ten annotations per step, so the worst verdicts come first. */
const severity = ({ verdict }: InstanceReport): number => {
  if (verdict === "resolved") return 3;
  return verdict === "infra_error" || verdict === "env_invalid" ? 2 : verdict === "flaky" ? 1 : 0;
};

/** Workflow commands for the log of a GitHub action: a group per instance, and an annotation per verdict. */
export function renderGithub({ report, unfinished }: StoredRun): string {
  const sorted = report.instances.toSorted((a, b) => severity(a) - severity(b));
  const blocks = sorted.map((instance) => {
    const failing = testRows(instance).filter(({ good }) => !good);
    const title = `${instance.id}: ${instance.verdict}`;
    const file = failing.map(({ id }) => fileOf(id)).find((path) => path !== undefined);
    const level = severity(instance) === 0 ? "error" : "warning";
    const place = file === undefined ? "" : `file=${property(file)},`;
    return [
      `::group::${data(title)}`,
      line(instance.reason),
      ...failing.slice(0, mostTests).map(({ id, status }) => line(`${status}: ${id}`)),
      ...(failing.length > mostTests ? [`and ${failing.length - mostTests} more`] : []),
      "::endgroup::",
      ...(instance.verdict === "resolved"
        ? []
        : [`::${level} ${place}title=${property(title)}::${data(instance.reason)}`]),
    ].join("\n");
  });
  const left = unfinished.map((label) => `::warning title=${property(label)}::${data("It did not end.")}`);
  return [...blocks, ...left, ""].join("\n");
}
