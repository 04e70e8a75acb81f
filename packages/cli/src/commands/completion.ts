import { Argument, type Command } from "commander";
import type { Cli } from "../cli.ts";
import { describeCommands } from "../command-tree.ts";
import { bashCompletion } from "../completion/bash.ts";
import { fishCompletion } from "../completion/fish.ts";
import { zshCompletion } from "../completion/zsh.ts";
import { verb } from "./verb.ts";

const scripts = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion } as const;

export function completionCommand(cli: Cli): Command {
  return verb(cli, "completion", "Print a script that completes atoll in your shell", {
    examples: [
      "atoll completion bash > ~/.local/share/bash-completion/completions/atoll",
      'atoll completion zsh > "${fpath[1]}/_atoll"',
      "atoll completion fish > ~/.config/fish/completions/atoll.fish",
    ],
  })
    .addArgument(new Argument("<shell>", "bash, zsh or fish").choices(Object.keys(scripts)))
    .action(async (shell: keyof typeof scripts, _options: unknown, command: Command) => {
      const commands = describeCommands(command.parent ?? command);
      const script = scripts[shell](commands);
      if (cli.isJson) await cli.printJson({ shell, script });
      else await cli.write(script);
    });
}
