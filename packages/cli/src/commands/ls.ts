import { sandboxStates, type SandboxInfo, type SandboxState } from "@atoll/protocol";
import { Option, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { collectPairs, type Pairs } from "../input/pair.ts";
import { listSandboxes } from "../lookup/find-sandbox.ts";
import { formatDuration, formatTime } from "../output/amount.ts";
import type { Tone } from "../output/style.ts";
import type { Column } from "../output/table.ts";
import { verb } from "./verb.ts";

interface LsOptions {
  state?: SandboxState;
  label?: Pairs;
  quiet?: boolean;
}

export function lsCommand(cli: Cli): Command {
  return verb(cli, "ls", "List sandboxes", {
    examples: ["atoll ls", "atoll ls --state running --label job=42", "atoll kill $(atoll ls -q --label job=42)"],
  })
    .addOption(new Option("--state <state>", "only those in this state").choices(sandboxStates))
    .option("-l, --label <name=value>", "only those with this label; may be repeated", collectPairs("a label"))
    .option("-q, --quiet", "print only the ids")
    .action(async (options: LsOptions) => {
      const sandboxes = await cli.during(
        "Listing sandboxes",
        listSandboxes(cli, {
          ...(options.state === undefined ? {} : { state: options.state }),
          ...(options.label === undefined ? {} : { labels: options.label }),
        }),
      );
      if (cli.isJson) await cli.printJson({ sandboxes });
      else if (options.quiet === true) await cli.write(sandboxes.map(({ id }) => `${id}\n`).join(""));
      else if (sandboxes.length === 0) cli.note(`No sandboxes. "atoll create" makes one.`);
      else await cli.printTable(columns(Date.now()), sandboxes);
    });
}

function columns(nowMs: number): Column<SandboxInfo>[] {
  return [
    { header: "ID", cell: ({ id }) => id },
    { header: "STATE", cell: ({ state, guest }) => guest ?? state, tone: ({ state }) => toneOfState(state) },
    { header: "TEMPLATE", cell: ({ template }) => template, isDetail: true },
    { header: "DRIVER", cell: ({ driver }) => driver, isDetail: true },
    { header: "PERSISTENT", cell: ({ persistent }) => (persistent ? "yes" : "no") },
    {
      header: "CREATED",
      cell: ({ createdAtMs }) => `${formatDuration(nowMs - createdAtMs)} ago`,
      plain: ({ createdAtMs }) => formatTime(createdAtMs),
    },
    {
      header: "ENDS",
      cell: ({ endsAtMs }) => (endsAtMs === undefined ? "never" : `in ${formatDuration(endsAtMs - nowMs)}`),
      plain: ({ endsAtMs }) => (endsAtMs === undefined ? "never" : formatTime(endsAtMs)),
    },
    { header: "COMMANDS", cell: ({ runningCommands }) => String(runningCommands), align: "right", isDetail: true },
    {
      header: "LABELS",
      cell: ({ labels }) =>
        Object.entries(labels)
          .map(([name, value]) => `${name}=${value}`)
          .join(","),
    },
  ];
}

function toneOfState(state: SandboxState): Tone {
  switch (state) {
    case "running":
      return "good";
    case "creating":
    case "pausing":
    case "resuming":
    case "killing":
      return "busy";
    case "paused":
    case "killed":
    case "released":
      return "quiet";
    case "failed":
      return "bad";
  }
}
