import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import type { AppReplies } from "../../app/app-requests.ts";
import type { Cli } from "../../cli.ts";
import { UsageError } from "../../input/usage-error.ts";
import { formatDuration } from "../../output/amount.ts";
import { printable } from "../../output/printable.ts";
import type { Column } from "../../output/table.ts";
import { verb } from "../verb.ts";

interface VersionsOptions {
  module?: string;
  diff?: { from: number; to: number };
}

type GenerationRow = AppReplies["versions"][number];
type VersionRow = AppReplies["history"]["versions"][number];

export function versionsOfApp(cli: Cli): Command {
  return verb(cli, "versions", "List the generations of an app or the versions of a module, or show what differs", {
    examples: [
      "atoll app versions chat",
      "atoll app versions chat --module src/texts.ts",
      "atoll app versions chat --diff 1..3",
    ],
  })
    .argument("<app>", "its id")
    .option("--module <path>", "the versions of this module, such as src/texts.ts")
    .option("--diff <from..to>", "what differs between two of them", parseRange)
    .action(async (id: string, { module, diff }: VersionsOptions) => {
      const client = new AppClient(cli);
      if (diff !== undefined) {
        const request = { id, ...diff, ...(module === undefined ? {} : { module }) };
        await printDiff(cli, await cli.during("Comparing", client.ask("diff", request)));
      } else if (module === undefined) {
        const generations = await cli.during("Asking", client.ask("versions", { id }));
        if (cli.isJson) await cli.printJson({ generations });
        else await cli.printTable(generationColumns(Date.now()), generations);
      } else {
        const history = await cli.during("Asking", client.ask("history", { id, module }));
        if (cli.isJson) await cli.printJson(history);
        else await cli.printTable(versionColumns(Date.now(), history.current), history.versions);
      }
    });
}

async function printDiff(cli: Cli, differences: AppReplies["diff"]): Promise<void> {
  if (cli.isJson) return cli.printJson({ differences });
  if (differences.length === 0) cli.note("Nothing differs.");
  for (const { module, from, to, patch } of differences) {
    const title = [`--- ${module} (version ${from ?? "none"})`, `+++ ${module} (version ${to ?? "none"})`];
    const body = patch.split("\n").filter((line) => !/^(---|\+\+\+) /.test(line));
    const lines = [...title, ...body].map((line) => line.split("\t").map(printable).join("\t"));
    await cli.write(`${lines.join("\n").trimEnd()}\n`);
  }
}

const generationColumns = (nowMs: number): Column<GenerationRow>[] => [
  { header: "GENERATION", cell: ({ number }) => String(number), align: "right" },
  { header: "", cell: marksOf, tone: ({ failure }) => (failure === undefined ? "good" : "bad") },
  { header: "CAUSE", cell: ({ cause }) => cause },
  ageColumn(nowMs),
  { header: "CHANGED", cell: ({ changed }) => changed.join(" ") },
];

const versionColumns = (nowMs: number, current: number | undefined): Column<VersionRow>[] => [
  { header: "VERSION", cell: ({ number }) => String(number), align: "right" },
  { header: "", cell: ({ number }) => (number === current ? "current" : ""), tone: () => "good" },
  ageColumn(nowMs),
  { header: "SOURCE", cell: ({ sourceSha256 }) => sourceSha256.slice(0, 12) },
  { header: "IMPORTS", cell: ({ dependencies }) => dependencies.map(({ specifier }) => specifier).join(" ") },
];

function ageColumn<Row extends { at: string }>(nowMs: number): Column<Row> {
  return {
    header: "FIRST USED",
    cell: ({ at }) => `${formatDuration(nowMs - Date.parse(at))} ago`,
    plain: ({ at }) => at,
  };
}

function marksOf({ isCurrent, isLastGood, failure }: GenerationRow): string {
  const marks = [...(isCurrent ? ["current"] : []), ...(isLastGood ? ["last good"] : [])];
  return [...marks, ...(failure === undefined ? [] : [`left: ${failure}`])].join(", ");
}

function parseRange(text: string): { from: number; to: number } {
  const [, from, to] = /^(\d+)\.\.(\d+)$/.exec(text) ?? [];
  if (Number(from) >= 1 && Number(to) >= 1) return { from: Number(from), to: Number(to) };
  throw new UsageError(`Cannot read ${JSON.stringify(text)} as two versions`, "Write them as 1..3.");
}
