import { inspect } from "node:util";
import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import type { Cli } from "../../cli.ts";
import { parseDuration } from "../../input/duration.ts";
import { UsageError } from "../../input/usage-error.ts";
import { verb } from "../verb.ts";

interface CallOptions {
  cast?: boolean;
  timeout?: number;
}

export function callApp(cli: Cli): Command {
  return verb(cli, "call", "Call a service of an app, and print its answer", {
    examples: [
      "atoll app call chat rooms enter '\"me\"'",
      'atoll app call shop cart add \'{"item": "tea"}\' --timeout 2s',
      "atoll app call shop cart clear --cast",
    ],
  })
    .argument("<app>", "its id")
    .argument("<service>", "the name of the service")
    .argument("<handler>", "the name of the handler")
    .argument("[argument]", "its argument as JSON")
    .option("--cast", "send a message, and do not wait for an answer")
    .option("--timeout <duration>", "how long to wait for the answer; by default 30s", parseDuration)
    .action(async (id: string, service: string, name: string, text: string | undefined, options: CallOptions) => {
      const { cast: isCast = false, timeout: timeoutMs } = options;
      const request = {
        id,
        service,
        name,
        isCast,
        ...(text === undefined ? {} : { argument: parseArgument(text) }),
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
      };
      const { value } = await cli.during("Waiting for the answer", new AppClient(cli).ask("call", request));
      if (cli.isJson) return cli.printJson({ value });
      if (isCast) return;
      // A terminal is read by a person, and everything else by a program.
      if (cli.isTerminal) return cli.print(inspect(value, { depth: null, colors: cli.style("strong", "") !== "" }));
      await cli.printJson(value);
    });
}

function parseArgument(text: string): never {
  try {
    return JSON.parse(text) as never;
  } catch {
    throw new UsageError(
      `Cannot read the argument ${JSON.stringify(text)}: it is not JSON`,
      `Quote a text twice: '"${text.replaceAll('"', "")}"'.`,
    );
  }
}
