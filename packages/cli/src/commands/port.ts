import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { parseDuration } from "../input/duration.ts";
import { wholeNumber } from "../input/number.ts";
import { findSandbox } from "../lookup/find-sandbox.ts";
import { verb } from "./verb.ts";

interface PortOptions {
  public?: boolean;
  private?: boolean;
  wait?: number | true;
}

const longestWaitMs = 60_000;

export function portCommand(cli: Cli): Command {
  return verb(cli, "port", "Print the URL of a port of a sandbox", {
    examples: ["atoll port 4k2 8000", "atoll port --wait 30s 4k2 8000", "curl $(atoll port --public 4k2 8000)"],
  })
    .argument("<sandbox>", "its id, or the beginning of it")
    .argument("<port>", "the port in the sandbox", wholeNumber("a port", 1, 65_535))
    .addHelpText(
      "after",
      "\nUnless the port is public, requests need its token, in ?atoll_token= or in X-Port-Token; --json prints it.",
    )
    .option("--public", "let anyone in who has the URL")
    .option("--private", "require the token again")
    .option("--wait <duration>", "wait until a program listens on it, at most 1m", parseDuration)
    .action(async (id: string, port: number, options: PortOptions) => {
      const sandbox = await findSandbox(cli, id);
      if (typeof options.wait === "number") {
        const timeoutMs = Math.min(options.wait, longestWaitMs);
        await cli.during(`Waiting for port ${port}`, sandbox.waitForPort(port, { timeoutMs, signal: cli.signal }));
      }
      const isPublic = options.public === true ? true : options.private === true ? false : undefined;
      const answer = await cli.during("Asking", sandbox.getUrl(port, { public: isPublic, signal: cli.signal }));
      if (cli.isJson) await cli.printJson(answer);
      else await cli.print(answer.url);
      if (answer.token !== undefined && cli.isTerminal) cli.note(`Requests need the token ${answer.token}`);
    });
}
