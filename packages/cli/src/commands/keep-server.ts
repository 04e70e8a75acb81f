import type { Command } from "commander";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { keepServer } from "../host/server-keeper.ts";
import { wordOfFailure } from "../host/start-keeper.ts";
import { verb } from "./verb.ts";

/** For other commands, which start it when they need a server and there is none. */
export function keepServerCommand(cli: Cli): Command {
  return verb(cli, "keep-server", "Run a private server in a directory for as long as a client is connected")
    .argument("<directory>", "everything that it keeps")
    .action(async (directory: string) => {
      try {
        await keepServer(directory, cli.signal, () => void cli.printJson({ ready: true }));
      } catch (error) {
        await cli.printJson(wordOfFailure(error));
        cli.exitCode = exitCodes.failure;
      }
    });
}
