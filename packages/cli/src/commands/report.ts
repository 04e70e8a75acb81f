import { appendFile } from "node:fs/promises";
import type { ReportFormatId } from "@atoll/runner";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { UsageError } from "../input/usage-error.ts";
import { addFormat, reportFormatNames } from "../runner/report-formats.ts";
import { verb } from "./verb.ts";

interface ReportOptions {
  format?: ReportFormatId[];
  output?: string;
}

export function reportCommand(cli: Cli): Command {
  return verb(cli, "report", "Make reports of a run, also of one that goes on or was killed", {
    examples: [
      "atoll report atoll-runs/nightly",
      "atoll report atoll-runs/nightly --format junit --format ctrf --output build/reports",
      "atoll report atoll-runs/nightly --format markdown --output -",
      "atoll report atoll-runs/nightly --format github",
    ],
  })
    .argument("<directory>", "the directory of the run")
    .addOption(
      new Option("--format <name>", "which; may be repeated (default: html)")
        .choices(reportFormatNames)
        .argParser(addFormat),
    )
    .option("--output <directory>", "where to, or - for stdout (default: the directory of the run; github: stdout)")
    .action(async (directory: string, { format = ["html"], output }: ReportOptions) => {
      const { readRun, renderReport, writeReports } = await import("@atoll/runner");
      const run = await readRun(directory);
      const isPrinted = (name: ReportFormatId): boolean =>
        output === "-" || (name === "github" && output === undefined);
      const printed = format.filter(isPrinted);
      if (printed.length > 1) {
        throw new UsageError("Cannot print several reports at once", "Name one format, or a directory with --output.");
      }
      for (const name of printed) {
        const text = await renderReport(run, name);
        if (text === undefined) {
          throw new UsageError(`Cannot print the format ${name}: it is many files`, "Give a directory with --output.");
        }
        await cli.write(text);
        if (name === "github") await writeSummary(cli, await renderReport(run, "markdown"));
      }
      const rest = format.filter((name) => !isPrinted(name));
      const paths = await writeReports(run, rest, output === undefined || output === "-" ? directory : output);
      if (cli.isJson && printed.length === 0) await cli.printJson({ paths });
      else for (const path of paths) await cli.print(path);
    });
}

/** In a GitHub action, this file is the summary that the page of the job shows. */
async function writeSummary(cli: Cli, markdown = ""): Promise<void> {
  const { githubSummaryPath } = cli.environment;
  if (githubSummaryPath !== undefined) await appendFile(githubSummaryPath, markdown);
}
