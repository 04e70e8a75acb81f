import type { CommandDescription } from "../command-tree.ts";

/** What may follow these words of a command line: commands, or choices of its arguments. */
export function wordsAfter(path: readonly string[], commands: readonly CommandDescription[]): string[] {
  const below = commands.filter(
    (command) => command.path.length === path.length + 1 && path.every((word, at) => command.path[at] === word),
  );
  const own = commands.find((command) => command.path.join(" ") === path.join(" "));
  return [...below.map((command) => command.path.at(-1) ?? ""), ...(own?.choices ?? [])];
}

export function flagsOf(command: CommandDescription): string[] {
  return [...command.options.flatMap(({ flags }) => flags), "--help"];
}

/** For single quotes of a shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
