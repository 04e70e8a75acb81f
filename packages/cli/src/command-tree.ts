import type { Command } from "commander";

/** One command as its users see it. */
export interface CommandDescription {
  /** The words after `atoll`: `["key", "create"]`. */
  path: readonly string[];
  summary: string;
  usage: string;
  options: readonly {
    flags: readonly string[];
    takesValue: boolean;
    choices: readonly string[];
    description: string;
  }[];
  /** The values of the arguments, where that is a fixed list. */
  choices: readonly string[];
  /** Whether the first argument is a sandbox. */
  takesSandbox: boolean;
  /** Whether the first argument is a live app. */
  takesApp: boolean;
  hasCommands: boolean;
}

/** Every command below this one, each before those below it. */
export function describeCommands(program: Command): CommandDescription[] {
  return program.commands.flatMap((command) => describe(command, []));
}

function describe(command: Command, above: readonly string[]): CommandDescription[] {
  const path = [...above, command.name()];
  const arguments_ = command.registeredArguments;
  const words = arguments_.map((argument) => {
    const name = argument.variadic ? `${argument.name()}...` : argument.name();
    return argument.required ? `<${name}>` : `[${name}]`;
  });
  const own: CommandDescription = {
    path,
    summary: command.description(),
    usage: ["atoll", ...path, ...words].join(" "),
    options: command.options.map((option) => ({
      flags: [option.short, option.long].filter((flag) => flag !== undefined && flag !== null),
      takesValue: option.required || option.optional,
      choices: option.argChoices ?? [],
      description: option.description,
    })),
    choices: arguments_.flatMap((argument) => argument.argChoices ?? []),
    takesSandbox: /^sandbox(es)?$/.test(arguments_[0]?.name() ?? ""),
    takesApp: /^apps?$/.test(arguments_[0]?.name() ?? ""),
    hasCommands: command.commands.length > 0,
  };
  return [own, ...command.commands.flatMap((below) => describe(below, path))];
}
