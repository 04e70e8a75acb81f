import type { CommandDescription } from "../command-tree.ts";

/** Returns what may follow these words of a command line: commands, or choices of the command's arguments. */
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

/**
 * Lists the places where a value is expected: the command and the flag before it as a pattern of the shell's `case`,
 * and the choices, if they are a fixed list.
 */
export function valuesOf(commands: readonly CommandDescription[]): { pattern: string; choices: readonly string[] }[] {
  return commands.flatMap(({ path, options }) =>
    options
      .filter(({ takesValue }) => takesValue)
      .map(({ flags, choices }) => ({
        pattern: flags.map((flag) => quoted(`${path.join(" ")}:${flag}`)).join("|"),
        choices,
      })),
  );
}

/** Whether the command takes one sandbox, so that completion offers no second one. */
export function takesOneSandbox({ takesSandbox, usage }: CommandDescription): boolean {
  return takesSandbox && !usage.includes("sandboxes...");
}

/** Whether the command takes one app, which is then the first word behind the command. */
export function takesOneApp({ takesApp, usage }: CommandDescription): boolean {
  return takesApp && !usage.includes("apps...");
}

/** Quotes a text for a shell, in single quotes. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
