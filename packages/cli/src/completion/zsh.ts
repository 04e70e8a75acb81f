import type { CommandDescription } from "../command-tree.ts";
import { quoted, wordsAfter } from "./words.ts";

export function zshCompletion(commands: readonly CommandDescription[]): string {
  const describedBelow = (path: readonly string[]): string => {
    const rows = wordsAfter(path, commands).map((word) => {
      const below = commands.find((command) => command.path.join(" ") === [...path, word].join(" "));
      return quoted(below === undefined ? word : `${word}:${below.summary.replaceAll(":", "\\:")}`);
    });
    return `candidates=(${rows.join(" ")})`;
  };
  const cases = commands.map((command) => {
    const flags = command.options.flatMap(({ flags: names, description }) =>
      names.map((name) => quoted(`${name}:${description.replaceAll(":", "\\:")}`)),
    );
    const ids = command.takesSandbox ? `; candidates+=(\${(f)"$(atoll ls --quiet 2>/dev/null)"})` : "";
    return `    ${quoted(command.path.join(" "))}) ${describedBelow(command.path)}${ids}; flags=(${flags.join(" ")}) ;;`;
  });
  const groups = commands.filter(({ hasCommands }) => hasCommands).map(({ path }) => quoted(path.join(" ")));
  return `#compdef atoll
_atoll() {
  local spot
  local -a candidates flags
  spot="\${words[2]}"
  if (( CURRENT == 2 )); then spot=''; fi
  case "$spot" in
    ${groups.join("|")}) if (( CURRENT > 3 )); then spot="$spot \${words[3]}"; fi ;;
  esac
  case "$spot" in
    '') ${describedBelow([])} ;;
${cases.join("\n")}
  esac
  if [[ "\${words[CURRENT]}" == -* ]]; then
    _describe 'option' flags
  elif (( \${#candidates} > 0 )); then
    _describe 'command' candidates
  else
    _files
  fi
}
compdef _atoll atoll
`;
}
