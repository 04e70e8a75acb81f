import { readFileSync } from "node:fs";
import { Command } from "commander";
import type { Cli, SharedOptions } from "./cli.ts";
import { attachCommand } from "./commands/attach.ts";
import { completionCommand } from "./commands/completion.ts";
import { configCommand } from "./commands/config.ts";
import { cpCommand } from "./commands/cp.ts";
import { createCommand } from "./commands/create.ts";
import { doctorCommand } from "./commands/doctor.ts";
import { eventsCommand } from "./commands/events.ts";
import { execCommand } from "./commands/exec.ts";
import { infoCommand } from "./commands/info.ts";
import { keyCommand } from "./commands/key.ts";
import { killCommand } from "./commands/kill.ts";
import { logsCommand } from "./commands/logs.ts";
import { lsCommand } from "./commands/ls.ts";
import { portCommand } from "./commands/port.ts";
import { psCommand } from "./commands/ps.ts";
import { runCommand } from "./commands/run.ts";
import { shellCommand } from "./commands/shell.ts";
import { statsCommand } from "./commands/stats.ts";
import { templateCommand } from "./commands/template.ts";
import { upCommand } from "./commands/up.ts";
import { addSharedOptions, outputOf } from "./commands/verb.ts";
import { exitCodeHelp } from "./exit-code.ts";

const groups: Readonly<Record<string, readonly ((cli: Cli) => Command)[]>> = {
  "Run things:": [runCommand, execCommand, shellCommand, attachCommand, logsCommand, psCommand],
  "Sandboxes:": [createCommand, lsCommand, infoCommand, statsCommand, cpCommand, portCommand, killCommand],
  "Server:": [upCommand, doctorCommand, eventsCommand, templateCommand, keyCommand],
  "This program:": [configCommand, completionCommand],
};

/** The whole command line. It writes help; errors are thrown, for `main` to tell. */
export function buildProgram(cli: Cli): Command {
  const program = new Command("atoll")
    .description("Run code you do not trust on machines you own")
    .version(version(), "-V, --version", "print the version")
    .helpOption("-h, --help", "show this help")
    .configureOutput(outputOf(cli))
    .exitOverride()
    .enablePositionalOptions();
  addSharedOptions(program);
  for (const [group, commands] of Object.entries(groups)) {
    for (const make of commands) program.addCommand(make(cli).helpGroup(group));
  }
  program.addHelpCommand(
    new Command("help").argument("[command]").description("Show the help of a command").helpGroup("This program:"),
  );
  program.hook("preAction", (_program, command) => cli.begin(command.optsWithGlobals<SharedOptions>()));
  program.addHelpText(
    "after",
    `\n${exitCodeHelp}\n\nThe server and the key come from --url and --key, else from ATOLL_API_URL and ATOLL_API_KEY, else from "atoll config set".`,
  );
  return program;
}

function version(): string {
  const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string };
  return manifest.version;
}
