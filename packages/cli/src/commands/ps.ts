import type { CommandInfo } from "@atoll/protocol";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodeOf } from "../exit-code.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { formatDuration, formatTime } from "../output/amount.ts";
import type { Column } from "../output/table.ts";
import { verb } from "./verb.ts";

interface PsOptions {
  all?: boolean;
}

export function psCommand(cli: Cli): Command {
  return verb(cli, "ps", "List the commands of a sandbox", { examples: ["atoll ps 4k2", "atoll ps --all 4k2"] })
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("-a, --all", "also those that have ended")
    .action(async (id: string, options: PsOptions) => {
      const sandbox = await findSandbox(cli, id);
      const all = await cli.during("Asking", sandbox.commands.list({ signal: cli.signal }));
      const commands = options.all === true ? all : all.filter(({ state }) => state === "running");
      if (cli.isJson) await cli.printJson({ commands });
      else await cli.printTable(columns(Date.now()), commands);
    });
}

function columns(nowMs: number): Column<CommandInfo>[] {
  return [
    { header: "ID", cell: ({ id }) => id },
    { header: "NAME", cell: ({ name }) => name ?? "-" },
    {
      header: "STATE",
      cell: (command) => (command.state === "exited" ? `exited ${exitCodeOf(command)}` : command.state),
      tone: ({ state, exitCode }) =>
        state === "running" ? "good" : state === "lost" || exitCode !== 0 ? "bad" : "quiet",
    },
    {
      header: "STARTED",
      cell: ({ startedAtMs }) => `${formatDuration(nowMs - startedAtMs)} ago`,
      plain: ({ startedAtMs }) => formatTime(startedAtMs),
    },
    { header: "COMMAND", cell: ({ argv }) => argv.join(" ") },
  ];
}
