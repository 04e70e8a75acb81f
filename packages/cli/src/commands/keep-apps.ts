import type { Command } from "commander";
import { keepApps } from "../app/app-keeper.ts";
import type { Cli } from "../cli.ts";
import { exitCodes } from "../exit-code.ts";
import { wordOfFailure } from "../host/start-keeper.ts";
import { verb } from "./verb.ts";

/** For commands about apps, which start it when it does not run. */
export function keepAppsCommand(cli: Cli): Command {
  return verb(cli, "keep-apps", "Run the apps of a directory for as long as there are any")
    .argument("<directory>", "records, versions and logs of the apps")
    .action(async (directory: string) => {
      let isReady = false;
      try {
        await keepApps(directory, cli, () => {
          isReady = true;
          cli.stdout.write(`${JSON.stringify({ ready: true })}\n`);
        });
      } catch (error) {
        if (!isReady) cli.stdout.write(`${JSON.stringify(wordOfFailure(error))}\n`);
        cli.exitCode = exitCodes.failure;
      }
    });
}
