import { resolve } from "node:path";
import type { ReportFormatId, RunOptions } from "@atoll/runner";
import { Option, type Command } from "commander";
import { parseDuration } from "../input/duration.ts";
import { wholeNumber } from "../input/number.ts";
import { collect } from "../input/pair.ts";
import { parseSize } from "../input/size.ts";
import { UsageError } from "../input/usage-error.ts";
import { addFormat, reportFormatNames } from "./report-formats.ts";

export const clientNames = ["atoll", "docker", "podman"] as const;
export type ClientName = (typeof clientNames)[number];

/** What every command that runs something takes. */
export interface RunnerOptions {
  client?: ClientName;
  image?: string;
  template?: string;
  runId?: string;
  out?: string;
  jobs?: number;
  repeat?: number;
  seed?: number[];
  compat?: "off" | "suggest" | "auto";
  quarantine?: string[];
  format?: ReportFormatId[];
  repos?: string;
  cache: boolean;
  cacheSize?: number;
  timeout?: number;
}

const seeds = (text: string, before: number[] | undefined): number[] => [
  ...(before ?? []),
  ...text.split(",").map(wholeNumber("a seed", 0, 2 ** 31 - 1)),
];

/** Adds the options of a command that runs something. */
export function addRunnerOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--client <name>", "where sandboxes are started (default: what the task says, else atoll)").choices(
        clientNames,
      ),
    )
    .option("--image <image>", "the image of a container, with --client docker or podman")
    .option("--template <name>", "the template of a sandbox (default: host)")
    .option("--run-id <name>", "the name of the run; a run of the same name goes on where it ended")
    .option("--out <directory>", "where logs and reports go (default: atoll-runs/<run id>)")
    .option("-j, --jobs <number>", "how many at the same time (default: 1)", wholeNumber("a number of jobs", 1, 1_000))
    .option("--repeat <number>", "how often tests are run, each time with another seed (default: 1)", repeatOf)
    .option("--seed <number>", "a seed, or several with commas; may be repeated (default: 0,1,2 …)", seeds)
    .addOption(
      new Option("--compat <mode>", "fixes for old code on a new machine (default: auto)").choices([
        "off",
        "suggest",
        "auto",
      ]),
    )
    .addOption(
      new Option("--format <name>", "which reports are written; may be repeated (default: html)")
        .choices(reportFormatNames)
        .argParser(addFormat),
    )
    .option("--quarantine <file>", "ids of tests that decide nothing; may be repeated", collect)
    .option("--repos <directory>", "a folder of clones: owner__name.git, owner__name or owner/name")
    .option("--timeout <duration>", "the time limit of one test run", parseDuration)
    .option("--no-cache", "use no snapshot, and keep none")
    .option("--cache-size <size>", "remove snapshots beyond this afterwards, the least recently used first", parseSize);
}

const repeatOf = wholeNumber("a number of runs", 1, 1_000);

/** A name that sorts by time: `2026-11-19T10-15-30`. */
export function newRunId(now = new Date()): string {
  return now.toISOString().slice(0, 19).replaceAll(":", "-");
}

export function assertRunId(runId: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(runId)) return runId;
  throw new UsageError(
    `Cannot use ${JSON.stringify(runId)} as the name of a run`,
    "Use letters, digits, '.', '_', '-'.",
  );
}

/** Returns what the options choose of a run; what they leave out has the defaults of the runner. */
export function runChoices(options: RunnerOptions): Partial<RunOptions> {
  const { jobs, repeat, seed, compat, cache, cacheSize, repos } = options;
  return {
    useCache: cache,
    ...(jobs === undefined ? {} : { jobs }),
    ...(repeat === undefined ? {} : { repeat }),
    ...(seed === undefined ? {} : { seeds: seed }),
    ...(compat === undefined ? {} : { compatMode: compat }),
    ...(cacheSize === undefined ? {} : { cacheBytes: cacheSize }),
    ...(repos === undefined ? {} : { repos: resolve(repos) }),
  };
}
