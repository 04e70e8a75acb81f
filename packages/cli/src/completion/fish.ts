import type { CommandDescription } from "../command-tree.ts";
import { quoted, takesOneApp, takesOneSandbox } from "./words.ts";

export function fishCompletion(commands: readonly CommandDescription[]): string {
  const lines = [
    "# fish completion for atoll",
    "# Whether the words so far begin with these, options left aside; with --only they are all there is.",
    "function __atoll_at",
    "  set -l only 0",
    '  if test "$argv[1]" = --only; set only 1; set -e argv[1]; end',
    "  set -l words (commandline -opc)[2..-1]",
    "  set words (string match -v -- '-*' $words)",
    "  set -l count (count $argv)",
    "  if test $count -eq 0; test (count $words) -eq 0; return; end",
    "  test (count $words) -ge $count; or return 1",
    "  test $only -eq 1; and test (count $words) -ne $count; and return 1",
    '  test "$words[1..$count]" = "$argv"',
    "end",
    "function __atoll_has_sandbox",
    "  string match -qr '^[0-9a-z]{20}$' -- (commandline -opc)",
    "end",
  ];
  for (const command of commands) {
    const name = command.path.at(-1) ?? "";
    const above = command.path.slice(0, -1);
    const isHere = ["__atoll_at", ...(above.length === 0 ? [] : ["--only", ...above])].join(" ");
    lines.push(`complete -c atoll -f -n ${quoted(isHere)} -a ${quoted(name)} -d ${quoted(command.summary)}`);
    const isWithin = `__atoll_at ${command.path.join(" ")}`;
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
      const isWanted = takesOneSandbox(command) ? `${isWithin}; and not __atoll_has_sandbox` : isWithin;
      lines.push(`complete -c atoll -f -n ${quoted(isWanted)} -a '(atoll ls --quiet 2>/dev/null)'`);
    }
    if (command.takesApp) {
      const isWanted = takesOneApp(command) ? `__atoll_at --only ${command.path.join(" ")}` : isWithin;
      lines.push(`complete -c atoll -f -n ${quoted(isWanted)} -a '(atoll app ls --quiet 2>/dev/null)'`);
    }
  }
  return `${lines.join("\n")}\n`;
}
