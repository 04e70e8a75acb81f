import type { CommandDescription } from "../command-tree.ts";
import { flagsOf, wordsAfter } from "./words.ts";

/** Commands, flags and choices are in the script; ids of sandboxes are asked for when they are wanted. */
export function bashCompletion(commands: readonly CommandDescription[]): string {
  const rows = commands.map((command) => {
    const words = [...wordsAfter(command.path, commands), ...flagsOf(command)].join(" ");
    const ids = command.takesSandbox ? "; sandboxes=1" : "";
    return `    '${command.path.join(" ")}') words='${words}'${ids} ;;`;
  });
  const groups = commands.filter(({ hasCommands }) => hasCommands).map(({ path }) => path.join(" "));
  return `# bash completion for atoll
_atoll() {
  local current path words sandboxes
  current="\${COMP_WORDS[COMP_CWORD]}"
  path="\${COMP_WORDS[1]}"
  sandboxes=''
  if [ "$COMP_CWORD" -eq 1 ]; then path=''; fi
  case "$path" in
    ${groups.map((name) => `'${name}'`).join("|")}) if [ "$COMP_CWORD" -gt 2 ]; then path="$path \${COMP_WORDS[2]}"; fi ;;
  esac
  case "$path" in
    '') words='${[...wordsAfter([], commands), "--help", "--version"].join(" ")}' ;;
${rows.join("\n")}
    *) words='' ;;
  esac
  if [ -n "$sandboxes" ] && [ "\${current#-}" = "$current" ]; then
    words="$(atoll ls --quiet 2>/dev/null)"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _atoll atoll
`;
}
