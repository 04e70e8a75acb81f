import type { CommandDescription } from "../command-tree.ts";
import { quoted, takesOneApp, takesOneSandbox, valuesOf, wordsAfter } from "./words.ts";

/** Escapes the colon, which separates a word from its description. */
function escaped(text: string): string {
  return text.replaceAll(":", String.raw`\:`);
}

export function zshCompletion(commands: readonly CommandDescription[]): string {
  const describedBelow = (path: readonly string[]): string => {
    const rows = wordsAfter(path, commands).map((word) => {
      const below = commands.find((command) => command.path.join(" ") === [...path, word].join(" "));
      return quoted(below === undefined ? word : `${word}:${escaped(below.summary)}`);
    });
    return `candidates=(${rows.join(" ")})`;
  };
  const cases = commands.map((command) => {
    const flags = command.options.flatMap(({ flags: names, description }) =>
      names.map((name) => quoted(`${name}:${escaped(description)}`)),
    );
    const ids = command.takesSandbox ? `; sandboxes=${takesOneSandbox(command) ? "one" : "many"}` : "";
    const apps = command.takesApp ? `; apps=${takesOneApp(command) ? "one" : "many"}` : "";
    const below = describedBelow(command.path);
    return `    ${quoted(command.path.join(" "))}) ${below}${ids}${apps}; flags=(${flags.join(" ")}) ;;`;
  });
  const values = valuesOf(commands).map(({ pattern, choices }) => {
    const offer = `candidates=(${choices.map(quoted).join(" ")}); _describe 'value' candidates`;
    return `    ${pattern}) ${choices.length === 0 ? "_files" : offer}; return ;;`;
  });
  const groups = commands.filter(({ hasCommands }) => hasCommands).map(({ path }) => quoted(path.join(" ")));
  return `#compdef atoll
_atoll() {
  local spot sandboxes apps
  local -a candidates flags
  spot="\${words[2]}"
  if (( CURRENT == 2 )); then spot=''; fi
  case "$spot" in
    ${groups.join("|")}) if (( CURRENT > 3 )); then spot="$spot \${words[3]}"; fi ;;
  esac
  case "$spot:\${words[CURRENT - 1]}" in
${values.join("\n")}
  esac
  case "$spot" in
    '') ${describedBelow([])} ;;
${cases.join("\n")}
  esac
  if [[ "$sandboxes" == one && " \${words[3,CURRENT - 1]} " =~ ' [0-9a-z]{20} ' ]]; then sandboxes=''; fi
  if [[ -n "$sandboxes" && "\${words[CURRENT]}" != -* ]]; then
    candidates+=(\${(f)"$(atoll ls --quiet 2>/dev/null)"})
  fi
  if [[ "$apps" == one ]] && (( CURRENT > 4 )); then apps=''; fi
  if [[ -n "$apps" && "\${words[CURRENT]}" != -* ]]; then
    candidates+=(\${(f)"$(atoll app ls --quiet 2>/dev/null)"})
  fi
  if [[ "\${words[CURRENT]}" == -* ]]; then
    _describe 'option' flags
  elif (( \${#candidates} > 0 )); then
    _describe 'command' candidates
  else
    _files
  fi
}
# From a directory of $fpath this file is itself the function, and was called to complete something.
if [[ "\${funcstack[1]}" == _atoll ]]; then _atoll "$@"; else compdef _atoll atoll; fi
`;
}
