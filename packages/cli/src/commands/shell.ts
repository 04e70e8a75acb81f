import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { collectPairs, type Pairs } from "../input/pair.ts";
import { UsageError } from "../input/usage-error.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { attachTo } from "../session/attach-to.ts";
import { finish } from "../session/finish.ts";
import { waitForStart } from "../session/wait-for-start.ts";
import { terminalSize } from "../terminal/raw-terminal.ts";
import { verb } from "./verb.ts";

interface ShellOptions {
  env?: Pairs;
  workdir?: string;
  user?: string;
}

/** Runs bash where there is one. Every template has an sh. */
const loginShell = ["sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"];

export function shellCommand(cli: Cli): Command {
  return verb(cli, "shell", "Open a terminal in a sandbox", {
    isCommand: true,
    examples: ["atoll shell 4k2", "atoll shell -u root -w /etc 4k2"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .option("-e, --env <name=value>", "set a variable; may be repeated", collectPairs("a variable"))
    .option("-w, --workdir <path>", "start in this directory")
    .option("-u, --user <user>", "run as this user")
    .addHelpText("after", "\nEnter and then ~. leaves the shell and lets it run.")
    .action(async (id: string, options: ShellOptions) => {
      if (!cli.stdin.isTTY || cli.isJson) {
        throw new UsageError(
          "Cannot open a shell: stdin is not a terminal",
          `Run commands with "atoll exec -i ${id} -- sh" instead.`,
        );
      }
      const sandbox = await findSandbox(cli, id);
      const { term } = cli.environment;
      const start = sandbox.pty.create({
        ...terminalSize(cli.stdout, cli.stderr),
        argv: loginShell,
        env: { ...(term === undefined ? {} : { TERM: term }), ...options.env },
        ...(options.workdir === undefined ? {} : { cwd: options.workdir }),
        ...(options.user === undefined ? {} : { user: options.user }),
        signal: cli.signal,
      });
      const handle = await waitForStart(cli, start);
      await finish(cli, handle, await attachTo(cli, handle, { hasStdin: true }));
    });
}
