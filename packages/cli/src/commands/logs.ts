import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { wholeNumber } from "../input/number.ts";
import { findCommand } from "../lookup/find-command.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { relayOutput } from "../session/relay-output.ts";
import { verb } from "./verb.ts";

interface LogsOptions {
  follow?: boolean;
  from?: number;
}

export function logsCommand(cli: Cli): Command {
  return verb(cli, "logs", "Show the output of a command", {
    examples: ["atoll logs 4k2 web", "atoll logs -f 4k2 web", "atoll logs 4k2 cmd7f --from 4096 > rest.log"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .argument("<command>", "its name, its id, or the beginning of its id")
    .option("-f, --follow", "go on until the command ends")
    .option(
      "--from <bytes>",
      "leave out this many bytes from the beginning",
      wholeNumber("an offset", 0, Number.MAX_SAFE_INTEGER),
    )
    .action(async (id: string, nameOrId: string, options: LogsOptions) => {
      const sandbox = await findSandbox(cli, id);
      const command = await findCommand(cli, sandbox, nameOrId);
      const handle = await cli.during("Connecting", sandbox.commands.connect(command.id, { signal: cli.signal }));
      const from = options.from ?? 0;
      const untilBytes = options.follow === true ? undefined : command.stdoutBytes + command.stderrBytes;
      await relayOutput(cli, handle, { from, signal: cli.signal, ...(untilBytes === undefined ? {} : { untilBytes }) });
    });
}
