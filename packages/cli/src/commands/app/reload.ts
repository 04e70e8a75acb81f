import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import type { AppReplies } from "../../app/app-requests.ts";
import { showingMistakes } from "../../app/code-mistakes.ts";
import type { Cli } from "../../cli.ts";
import { verb } from "../verb.ts";

export function reloadApp(cli: Cli): Command {
  return verb(cli, "reload", "Bring the code of the folder into a running app, with its state", {
    examples: ["atoll app reload chat"],
  })
    .argument("<app>", "its id")
    .action(async (id: string) => {
      const client = new AppClient(cli);
      const reloading = client.ask("reload", { id });
      await printReload(cli, await cli.during("Reloading", showingMistakes(cli, "", reloading)));
    });
}

/** Says what a reload or a rollback did. */
export async function printReload(cli: Cli, result: AppReplies["reload"]): Promise<void> {
  if (cli.isJson) return cli.printJson(result);
  const { generation, modules, services, durationMs } = result;
  if (result.result === "no_change") return cli.print(`generation ${generation}, nothing has changed`);
  const kept = services.length === 0 ? "no service was affected" : `services with their states: ${services.join(" ")}`;
  await cli.print(`generation ${generation} in ${durationMs.toFixed(1)} ms: ${modules.join(" ")}; ${kept}`);
}
