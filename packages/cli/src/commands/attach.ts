import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { wholeNumber } from "../input/number.ts";
import { findCommand } from "../lookup/find-command.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { attachTo } from "../session/attach-to.ts";
import { finish } from "../session/finish.ts";
import { verb } from "./verb.ts";

interface AttachOptions {
  from?: number;
  stdin: boolean;
}

export function attachCommand(cli: Cli): Command {
  return verb(cli, "attach", "Connect to a running command: its output from the beginning, and your input", {
    isCommand: true,
    examples: ["atoll attach 4k2 web", "atoll attach 4k2 cmd7f --no-stdin", "atoll attach 4k2 cmd7f --from 4096"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .argument("<command>", "its name, its id, or the beginning of its id")
    .option(
      "--from <bytes>",
      "leave out this many bytes from the beginning",
      wholeNumber("an offset", 0, Number.MAX_SAFE_INTEGER),
    )
    .option("--no-stdin", "only look, send nothing")
    .addHelpText("after", "\nOn a terminal, Enter and then ~. leaves the command and lets it run.")
    .action(async (id: string, nameOrId: string, options: AttachOptions) => {
      const sandbox = await findSandbox(cli, id);
      const { id: commandId, hasStdin, state } = await findCommand(cli, sandbox, nameOrId);
      const from = options.from ?? 0;
      const handle = await cli.during("Connecting", sandbox.commands.connect(commandId, { from, signal: cli.signal }));
      const isTyping = options.stdin && hasStdin && state === "running";
      await finish(cli, handle, await attachTo(cli, handle, { from, hasStdin: isTyping, isStartedElsewhere: true }));
    });
}
