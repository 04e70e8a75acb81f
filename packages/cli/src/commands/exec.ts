import type { CommandHandle, Sandbox } from "@atoll/sdk";
import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { parseDuration } from "../input/duration.ts";
import { collectPairs, type Pairs } from "../input/pair.ts";
import { UsageError } from "../input/usage-error.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { attachTo } from "../session/attach-to.ts";
import { finish } from "../session/finish.ts";
import { waitForStart } from "../session/wait-for-start.ts";
import { terminalSize } from "../terminal/raw-terminal.ts";
import { verb } from "./verb.ts";

interface ExecOptions {
  interactive?: boolean;
  tty?: boolean;
  detach?: boolean;
  env?: Pairs;
  workdir?: string;
  user?: string;
  timeout?: number;
  name?: string;
  keepAlive: boolean;
}

export function execCommand(cli: Cli): Command {
  return verb(cli, "exec", "Run a command in a sandbox", {
    isCommand: true,
    examples: [
      "atoll exec 4k2 -- ls -l /",
      "atoll exec -it 4k2 -- python3",
      "tar c . | atoll exec -i 4k2 -- tar x",
      "atoll exec -d --name web 4k2 -- python3 -u -m http.server 8000",
      "atoll exec -d --no-keep-alive 4k2 -- python3 -u -m http.server 8000",
      "atoll exec --timeout 30s -e CI=1 -w /srv 4k2 -- make test",
    ],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .argument("<command...>", "the program and its arguments")
    .option("-i, --interactive", "send stdin to the command")
    .option("-t, --tty", "give it a terminal; this sends stdin too")
    .option("-d, --detach", "print its id and leave it running")
    .option("-e, --env <name=value>", "set a variable; may be repeated", collectPairs("a variable"))
    .option("-w, --workdir <path>", "start in this directory")
    .option("-u, --user <user>", "run as this user")
    .option("--timeout <duration>", "end it after this (500ms, 30s, 5m, 2h), with exit code 124", parseDuration)
    .option("--name <name>", "a name to find it by")
    .option("--no-keep-alive", "let the sandbox count as idle while it runs, for a server that waits for requests")
    .addHelpText(
      "after",
      "\nWith -t every key goes to the command, Ctrl-C too; Enter and then ~. leaves it and lets it run.",
    )
    .action(async (id: string, words: string[], options: ExecOptions) => {
      if (options.detach === true && (options.interactive === true || options.tty === true)) {
        throw new UsageError(
          "Cannot detach with -i or -t: there would be no terminal to type in",
          "Leave one of them out; `atoll attach` connects a terminal later.",
        );
      }
      const sandbox = await findSandbox(cli, id);
      const handle = await waitForStart(cli, start(cli, sandbox, words, options));
      if (options.detach === true) {
        if (cli.isJson) await cli.printJson(handle.command);
        else await cli.print(handle.id);
        return;
      }
      const hasStdin = options.interactive === true || options.tty === true;
      await finish(cli, handle, await attachTo(cli, handle, { hasStdin }));
    });
}

async function start(cli: Cli, sandbox: Sandbox, words: string[], options: ExecOptions): Promise<CommandHandle> {
  const shared = {
    ...(options.workdir === undefined ? {} : { cwd: options.workdir }),
    ...(options.user === undefined ? {} : { user: options.user }),
    ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
    ...(options.name === undefined ? {} : { name: options.name }),
    keepAlive: options.keepAlive,
    signal: cli.signal,
  };
  if (options.tty === true) {
    const { term } = cli.environment;
    const env = { ...(term === undefined ? {} : { TERM: term }), ...options.env };
    return sandbox.pty.create({ ...shared, ...terminalSize(cli.stdout, cli.stderr), argv: words, env });
  }
  return sandbox.commands.run(words, {
    ...shared,
    background: true,
    stdin: options.interactive === true,
    ...(options.env === undefined ? {} : { env: options.env }),
  });
}
