import type { CommandDescription } from "../command-tree.ts";
import { flagsOf, takesOneApp, takesOneSandbox, valuesOf, wordsAfter } from "./words.ts";

/** The script contains commands, flags and choices; it asks for ids of sandboxes and apps when they are needed. */
export function bashCompletion(commands: readonly CommandDescription[]): string {
  const rows = commands.map((command) => {
    const words = wordsAfter(command.path, commands).join(" ");
    const ids = command.takesSandbox ? `; sandboxes=${takesOneSandbox(command) ? "one" : "many"}` : "";
    const apps = command.takesApp ? `; apps=${takesOneApp(command) ? "one" : "many"}` : "";
    return `    '${command.path.join(" ")}') words='${words}'${ids}${apps}; flags='${flagsOf(command).join(" ")}' ;;`;
  });
  const values = valuesOf(commands).map(({ pattern, choices }) => {
    const offer = choices.length === 0 ? "" : `$(compgen -W '${choices.join(" ")}' -- "$current")`;
    return `    ${pattern}) COMPREPLY=(${offer}); return ;;`;
  });
  const groups = commands.filter(({ hasCommands }) => hasCommands).map(({ path }) => path.join(" "));
  return `# bash completion for atoll
_atoll() {
  local current path words flags sandboxes apps
  current="\${COMP_WORDS[COMP_CWORD]}"
  path="\${COMP_WORDS[1]}"
  sandboxes=''
  apps=''
  if [ "$COMP_CWORD" -eq 1 ]; then path=''; fi
  case "$path" in
    ${groups.map((name) => `'${name}'`).join("|")})
      if [ "$COMP_CWORD" -gt 2 ]; then path="$path \${COMP_WORDS[2]}"; fi ;;
  esac
  case "$path:\${COMP_WORDS[COMP_CWORD - 1]}" in
${values.join("\n")}
  esac
  case "$path" in
    '') words='${wordsAfter([], commands).join(" ")}'; flags='--help --version' ;;
${rows.join("\n")}
    *) words=''; flags='' ;;
  esac
  if [ "$sandboxes" = one ] && [[ " \${COMP_WORDS[*]:2:COMP_CWORD - 2} " =~ \\ [0-9a-z]{20}\\  ]]; then sandboxes=''; fi
  if [ "$apps" = one ] && [ "$COMP_CWORD" -gt 3 ]; then apps=''; fi
  if [ "\${current#-}" != "$current" ]; then
    words="$flags"
  elif [ -n "$sandboxes" ]; then
    words="$(atoll ls --quiet 2>/dev/null)"
  elif [ -n "$apps" ]; then
    words="$(atoll app ls --quiet 2>/dev/null)"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _atoll atoll
`;
}
