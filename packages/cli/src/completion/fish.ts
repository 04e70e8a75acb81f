import type { CommandDescription } from "../command-tree.ts";
import { quoted, wordsAfter } from "./words.ts";

export function fishCompletion(commands: readonly CommandDescription[]): string {
  const lines = ["# fish completion for atoll"];
  for (const command of commands) {
    const [first = "", second] = command.path;
    const name = command.path.at(-1) ?? "";
    const isHere =
      second === undefined
        ? "__fish_use_subcommand"
        : `__fish_seen_subcommand_from ${first}; and not __fish_seen_subcommand_from ${siblings(first, commands)}`;
    lines.push(`complete -c atoll -f -n ${quoted(isHere)} -a ${quoted(name)} -d ${quoted(command.summary)}`);
    const isWithin =
      second === undefined
        ? `__fish_seen_subcommand_from ${first}`
        : `__fish_seen_subcommand_from ${first}; and __fish_seen_subcommand_from ${second}`;
    for (const { flags, takesValue, choices, description } of command.options) {
      const names = flags
        .map((flag) => (flag.startsWith("--") ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`))
        .join(" ");
      const value = takesValue ? (choices.length > 0 ? ` -x -a ${quoted(choices.join(" "))}` : " -r") : "";
      lines.push(`complete -c atoll -n ${quoted(isWithin)} ${names}${value} -d ${quoted(description)}`);
    }
    if (command.choices.length > 0) {
      lines.push(`complete -c atoll -f -n ${quoted(isWithin)} -a ${quoted(command.choices.join(" "))}`);
    }
    if (command.takesSandbox) {
      lines.push(`complete -c atoll -f -n ${quoted(isWithin)} -a '(atoll ls --quiet 2>/dev/null)'`);
    }
  }
  return `${lines.join("\n")}\n`;
}

function siblings(group: string, commands: readonly CommandDescription[]): string {
  return wordsAfter([group], commands).join(" ");
}
