import { Command, Option } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { UsageError } from "../input/usage-error.ts";

export interface VerbOptions {
  /** Whether the exit code is that of a command in a sandbox, so that our own failures need another code than 1. */
  isCommand?: boolean;
  examples?: readonly string[];
}

/** Makes a command with what all commands have: help with examples at its end, and the check of its arguments. */
export function verb(cli: Cli, name: string, summary: string, options: VerbOptions = {}): Command {
  const command = new WordsCommand(name).description(summary).configureOutput(outputOf(cli));
  command.addHelpOption(new Option("-h, --help", "show this help").helpGroup(everywhere));
  const claimExitCode = () => {
    if (options.isCommand === true) cli.failureExitCode = exitCodes.ownFailure;
  };
  command.hook("preAction", claimExitCode);
  command.exitOverride((error) => {
    if (error.exitCode !== 0) claimExitCode();
    if (error.code !== "commander.missingArgument") throw error;
    const [, missing = ""] = /argument '(.+)'/.exec(error.message) ?? [];
    throw new UsageError(`Missing required argument '${missing}'`, `"${pathOf(command)} --help" shows its arguments.`);
  });
  if (options.examples !== undefined) {
    command.addHelpText("after", `\nExamples:\n${options.examples.map((line) => `  ${line}`).join("\n")}`);
  }
  return command;
}

/** The command as the user types it. */
function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

const everywhere = "Everywhere:";

/** Adds the command of a group of commands that shows the help of one. */
export function addHelpCommand(group: Command): Command {
  return group.helpCommand("help [command]", "Show the help of a command");
}

/** Adds the options that this command and all below it have, after their own options. */
export function addSharedOptions(command: Command): Command {
  for (const [flags, description] of sharedOptions) {
    command.addOption(new Option(flags, description).helpGroup(everywhere));
  }
  for (const below of command.commands) addSharedOptions(below);
  return command;
}

const sharedOptions = [
  ["--json", "print JSON: one value, or a line each for streams"],
  ["--url <url>", "where the server is (ATOLL_API_URL)"],
  ["--key <key>", "the API key (ATOLL_API_KEY)"],
] as const;

/** Help goes to stdout, also where it is shown because no command was named; `main` reports errors. */
export function outputOf(cli: Cli) {
  const write = (text: string): void => void cli.stdout.write(text);
  return {
    writeOut: write,
    writeErr: write,
    outputError: () => undefined,
    getOutHasColors: () => cli.style("strong", "") !== "",
  };
}

/**
 * A command whose arguments end with the words of another program: with `--` options may come anywhere before it,
 * without it only before the first word.
 */
class WordsCommand extends Command {
  #endsInWords = false;

  override argument(...parameters: Parameters<Command["argument"]>): this {
    if (parameters[0] === "[command...]" || parameters[0] === "<command...>") this.#endsInWords = true;
    return super.argument(...parameters);
  }

  override parseOptions(argv: string[]) {
    if (this.#endsInWords) this.passThroughOptions(!argv.includes("--"));
    return super.parseOptions(argv);
  }
}
