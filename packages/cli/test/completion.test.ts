import { execFileSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { Cli } from "../src/cli.ts";
import { describeCommands } from "../src/command-tree.ts";
import { bashCompletion } from "../src/completion/bash.ts";
import { fishCompletion } from "../src/completion/fish.ts";
import { zshCompletion } from "../src/completion/zsh.ts";
import { readEnvironment } from "../src/environment.ts";
import { buildProgram } from "../src/program.ts";

const commands = describeCommands(await buildProgram(new Cli(process, readEnvironment({}))));
const id = "4k2aaaaaaaaaaaaaaaaa";

function run(shell: string, args: readonly string[]): string[] {
  const output = execFileSync(shell, args, { encoding: "utf8" });
  return output.trim() === "" ? [] : output.trim().split("\n");
}

/** What each shell offers for the last of these words. Files are shown as (files). */
const shells: Readonly<Record<string, (...words: string[]) => string[]>> = {
  bash: (...words) => {
    const script = `${bashCompletion(commands)}
atoll() { echo ${id}; }
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _atoll
if [ \${#COMPREPLY[@]} -eq 0 ]; then echo '(files)'; else printf '%s\\n' "\${COMPREPLY[@]}"; fi`;
    return run("bash", ["-c", script, "bash", ...words]);
  },
  // Only an interactive shell has the functions that draw; these replace them and filter in the same way.
  zsh: (...words) => {
    const script = `compdef() { : }
_files() { print '(files)' }
_describe() {
  local entry
  for entry in "\${(@P)2}"; do
    entry="\${entry%%:*}"
    [[ "$entry" == "\${words[CURRENT]}"* ]] && print -r -- "$entry"
  done
  true
}
${zshCompletion(commands)}
atoll() { echo ${id}; }
words=("$@"); CURRENT=$#; _atoll`;
    return run("zsh", ["-f", "-c", script, "zsh", ...words]);
  },
  fish: (...words) => {
    const script = `${fishCompletion(commands)}
function atoll; echo ${id}; end
cd (mktemp -d); touch file-here; complete -C $argv[1]; rm file-here; rmdir $PWD`;
    const offered = run("fish", ["--no-config", "-c", script, words.join(" ")]);
    return offered.map((line) => line.split("\t")[0] ?? "").map((word) => (word === "file-here" ? "(files)" : word));
  },
};

function canRun(shell: string): boolean {
  try {
    execFileSync(shell, ["-c", "true"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

describe.for(Object.keys(shells))("%s", (shell) => {
  const complete = shells[shell] ?? (() => []);

  const isHere = canRun(shell);

  test.for([
    ["atoll ex", ["exec"]],
    ["atoll key ", ["create", "ls", "revoke"]],
    ["atoll key create --max-s", ["--max-sandboxes"]],
    ["atoll exec --time", ["--timeout"]],
    ["atoll template ls --st", []],
    ["atoll exec 4", [id]],
    ["atoll exec --timeout 3s 4", [id]],
    [`atoll kill ${id} 4`, [id]],
    ["atoll completion z", ["zsh"]],
    ["atoll app info 4", [id]],
    ["atoll app info one ", ["(files)"]],
    ["atoll app rm one 4", [id]],
    ["atoll ls --state p", ["pausing", "paused"]],
    [`atoll exec ${id} `, ["(files)"]],
    ["atoll template import name ", ["(files)"]],
  ] as const)("completes %j to %j", ([line, offered], { skip }) => {
    skip(!isHere, `${shell} is not installed`);
    const found = complete(...line.split(" "));
    // Where none of our words fits, the shell may offer files.
    const ours = offered.length === 0 ? found.filter((word) => word !== "(files)") : found;
    expect(ours.toSorted()).toEqual(offered.toSorted());
  });
});
