import { expect, test } from "vitest";
import {
  catalogue,
  EnvRecipe,
  ParserId,
  reportFormats,
  RepoSpec,
  SandboxConfig,
  TaskSpec,
  Verdict,
} from "../../packages/runner/src/index.ts";
import { readText } from "./repository.ts";

/** Returns the names in the first cells of the table under a heading, with the cell behind each. */
function tableUnder(heading: string): Map<string, string> {
  const section =
    readText("docs/runner.md")
      .split(`\n${heading}\n`)[1]
      ?.split(/\n#{2,3} /)[0] ?? "";
  const rows = [...section.matchAll(/^\| `([^`]+)` +\| *([^|]*?) *\|/gm)];
  return new Map(rows.map(([, name = "", next = ""]) => [name, next]));
}

test.for<[string, readonly string[]]>([
  ["## Verdicts", Verdict.options],
  ["### Fields of a task", Object.keys(TaskSpec.shape)],
  ["### Fields of `sandbox`", Object.keys(SandboxConfig.shape)],
  ["### Fields of `repo`", Object.keys(RepoSpec.shape)],
  ["### Fields of `environment`", Object.keys(EnvRecipe.shape)],
  ["## Environments", catalogue.map(({ id }) => id)],
  ["## Parsers", ParserId.options],
  ["## Reports", Object.keys(reportFormats)],
])("docs/runner.md has a row for each of what is under %s", ([heading, names]) => {
  expect([...tableUnder(heading).keys()].toSorted()).toEqual(names.toSorted());
});

test("docs/runner.md has the real defaults of the fields", () => {
  const defaults = {
    "### Fields of a task": TaskSpec.parse({ test: "true" }),
    "### Fields of `sandbox`": SandboxConfig.parse({}),
    "### Fields of `repo`": RepoSpec.parse({ path: "." }),
    "### Fields of `environment`": EnvRecipe.parse({}),
  };
  for (const [heading, values] of Object.entries(defaults)) {
    for (const [name, documented] of tableUnder(heading)) {
      const value: unknown = Object.entries(values).find(([field]) => field === name)?.[1];
      if (value === undefined || (typeof value === "object" && documented === "") || name === "path") continue;
      const isEmpty = typeof value === "object" && value !== null && Object.keys(value).length === 0;
      const shown = isEmpty ? "none" : JSON.stringify(value).replaceAll('"', "");
      if (name !== "test") expect(`${name}: ${documented.replaceAll("`", "")}`).toBe(`${name}: ${shown}`);
    }
  }
});
