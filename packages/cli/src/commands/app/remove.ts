import type { Command } from "commander";
import { AppClient } from "../../app/app-client.ts";
import type { Cli } from "../../cli.ts";
import { verb } from "../verb.ts";

export function removeApps(cli: Cli): Command {
  return verb(cli, "rm", "End apps, and remove their versions and logs; their folders stay", {
    examples: ["atoll app rm chat"],
  })
    .argument("<apps...>", "their ids")
    .action(async (ids: string[]) => {
      const client = new AppClient(cli);
      for (const id of ids) {
        await cli.during(`Removing ${id}`, client.ask("remove", { id }));
        if (!cli.isJson) await cli.print(id);
      }
      if (cli.isJson) await cli.printJson({ removed: ids });
    });
}
