import { z } from "zod";
import { type Instance, TaskSpec } from "../models/task.ts";
import { parserOfDataSet } from "../parsers/parsers.ts";
import { check, parseJsonSource, type Source } from "./source.ts";

/** Data sets have numbers and nothing where they mean text. */
const text = z.union([z.string(), z.number().transform(String), z.null().transform(() => "")]).default("");

const Tests = z.array(z.string());

/** Only what the runner needs is checked; a data set may have any other columns. */
const Row = z.looseObject({
  instance_id: z.string().min(1),
  repo: z.string().min(1),
  base_commit: z.string().regex(/^[0-9a-f]{7,64}$/, "expected a commit"),
  patch: text,
  test_patch: text,
  problem_statement: text,
  version: text,
  created_at: text,
  /** Lists, or lists as a JSON string, as the tables on Hugging Face have them. */
  FAIL_TO_PASS: z.union([Tests, z.string()]).default([]),
  PASS_TO_PASS: z.union([Tests, z.string()]).default([]),
  eval_script: text,
  log_parser: text,
  eval_type: z.enum(["pass_and_fail", "fail_only"]).nullish(),
});

/** Repositories whose test runners print failures only, for rows of data sets that do not say it. */
const failOnly = new Set([
  "bpmn-io/bpmn-js",
  "chartjs/Chart.js",
  "eslint/eslint",
  "markedjs/marked",
  "openlayers/openlayers",
  "processing/p5.js",
]);

/** What runs when neither the row nor a recipe knows the test command. */
const noCommand = "echo 'The data set has no eval_script, and there is no recipe for this repository.' >&2; exit 127";

/** One row of SWE-bench, of any version, as an instance. */
export function readRow(source: Source, at: readonly PropertyKey[]): Instance {
  const row = check(Row, source, at);
  const evalScript = row.eval_script === "" ? undefined : row.eval_script;
  const logParser = row.log_parser === "" ? undefined : row.log_parser;
  const task = TaskSpec.parse({
    id: row.instance_id.replaceAll(/[^A-Za-z0-9._-]/g, "_").slice(0, 120),
    test: noCommand,
    environment: { language: "auto" },
    parser: parserOfDataSet({ logParser, repo: row.repo }) ?? "auto",
    expectedFail: true,
    failToPass: readTests(row.FAIL_TO_PASS, source, [...at, "FAIL_TO_PASS"]),
    passToPass: readTests(row.PASS_TO_PASS, source, [...at, "PASS_TO_PASS"]),
    failOnly: row.eval_type === "fail_only" || (row.eval_type !== "pass_and_fail" && failOnly.has(row.repo)),
  });
  return {
    id: row.instance_id,
    task,
    repo: row.repo,
    baseCommit: row.base_commit,
    version: row.version,
    goldPatch: row.patch === "" ? null : row.patch,
    testPatch: row.test_patch,
    ...(evalScript === undefined ? {} : { evalScript }),
    ...(logParser === undefined ? {} : { logParser }),
    problemStatement: row.problem_statement,
    createdAt: row.created_at,
  };
}

function readTests(value: string | string[], source: Source, at: readonly PropertyKey[]): string[] {
  if (typeof value !== "string") return value;
  const { line } = source.locate(at);
  return check(Tests, parseJsonSource(`${source.name} (the text in ${String(at.at(-1))})`, value || "[]", line));
}
